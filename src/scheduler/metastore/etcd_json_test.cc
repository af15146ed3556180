// The JSON of etcd's gateway: requests byte by byte, answers as etcd 3.4 gives them, and nonsense.
#include "scheduler/metastore/etcd_json.h"

#include <gtest/gtest.h>

namespace cairn::scheduler {
namespace {

HttpAnswer Answer(int status, std::string body) { return {status, std::move(body), "10.0.0.1:2379"}; }
const std::string kHeader =
    R"("header":{"cluster_id":"12101053776118486841","member_id":"15985099378392235387","revision":"7","raft_term":"2"})";

TEST(EtcdJson, Base64) {
  for (const auto& [bytes, text] :
       std::vector<std::pair<std::string, std::string>>{{"", ""},
                                                        {"f", "Zg=="},
                                                        {"fo", "Zm8="},
                                                        {"foo", "Zm9v"},
                                                        {"foob", "Zm9vYg=="},
                                                        {"fooba", "Zm9vYmE="},
                                                        {"foobar", "Zm9vYmFy"},
                                                        {std::string("\0\xff\xfe", 3), "AP/+"}}) {
    EXPECT_EQ(ToBase64(bytes), text);
    EXPECT_EQ(FromBase64(text), bytes);
  }
  for (const char* bad : {"Z", "Zg", "Zg=", "Zg=a", "Z===", "Zm9 ", "====", "Zg==Zg=="})
    EXPECT_FALSE(FromBase64(bad).has_value()) << bad;
}

TEST(EtcdJson, Requests) {
  KvTxn txn;
  txn.compares = {{"/j/leader", KvCompare::Field::kCreateRevision, 12},
                  {"/j/record", KvCompare::Field::kModRevision, 0}};
  txn.puts = {{"/j/record", "x"}, {"/j/leader", "y", 99}};
  txn.deletes = {"a"};
  EXPECT_EQ(TxnRequest(txn),
            R"({"compare":[{"result":"EQUAL","target":"CREATE","key":"L2ovbGVhZGVy","create_revision":"12"},)"
            R"({"result":"EQUAL","target":"MOD","key":"L2ovcmVjb3Jk","mod_revision":"0"}],)"
            R"("success":[{"request_put":{"key":"L2ovcmVjb3Jk","value":"eA=="}},)"
            R"({"request_put":{"key":"L2ovbGVhZGVy","value":"eQ==","lease":"99"}},)"
            R"({"request_delete_range":{"key":"YQ=="}}]})");
  EXPECT_EQ(RangeRequest("a"), R"({"key":"YQ=="})");
  EXPECT_EQ(LeaseGrantRequest(5), R"({"TTL":"5"})");
  EXPECT_EQ(LeaseRequest(int64_t{9041998665496463621}), R"({"ID":"9041998665496463621"})");
}

TEST(EtcdJson, OutcomesOfATransaction) {
  const KvTxnReply done = ParseTxnReply(
      Answer(200, "{" + kHeader +
                      R"(,"succeeded":true,"responses":[{"response_put":{"header":{"revision":"7"}}}]})"),
      1);
  EXPECT_EQ(done.outcome, KvOutcome::kSucceeded);
  EXPECT_EQ(done.revision, 7);
  EXPECT_EQ(ParseTxnReply(Answer(200, "{" + kHeader + "}"), 1).outcome, KvOutcome::kCompareFailed);
  EXPECT_EQ(
      ParseTxnReply(
          Answer(
              404,
              R"({"error":"etcdserver: requested lease not found","message":"etcdserver: requested lease not found","code":5})"),
          1)
          .outcome,
      KvOutcome::kRefused);
  // May have been carried out all the same.
  for (const char* text :
       {"etcdserver: request timed out", "etcdserver: no leader", "etcdserver: server stopped",
        "etcdserver: leader changed", "transport is closing"}) {
    const std::string body =
        std::string(R"({"error":")") + text + R"(","message":")" + text + R"(","code":14})";
    const KvTxnReply reply = ParseTxnReply(Answer(503, body), 1);
    EXPECT_EQ(reply.outcome, KvOutcome::kUnknown) << text;
    EXPECT_NE(reply.why.message().find(text), std::string::npos);
    EXPECT_NE(reply.why.message().find("10.0.0.1:2379"), std::string::npos);
    EXPECT_TRUE(AnotherMayKnow(Answer(503, body)));
  }
  for (const char* body : {"", "<html>", "[]", "{}", R"({"succeeded":true})", "404 page not found"})
    EXPECT_EQ(ParseTxnReply(Answer(200, body), 1).outcome, KvOutcome::kUnknown) << body;
  EXPECT_EQ(ParseTxnReply(Answer(200, R"({"header":{},"succeeded":true})"), 1).outcome, KvOutcome::kUnknown);
  EXPECT_EQ(ParseTxnReply(Answer(200, R"({"header":{"revision":"x"},"succeeded":true})"), 1).outcome,
            KvOutcome::kUnknown);
}

TEST(EtcdJson, ErrorsSayWhatToDo) {
  const auto error = [](int status, const std::string& text, int code) {
    const KvTxnReply reply = ParseTxnReply(Answer(status, R"({"error":")" + text + R"(","message":")" + text +
                                                              R"(","code":)" + std::to_string(code) + "}"),
                                           1'600'000);
    EXPECT_EQ(reply.outcome, KvOutcome::kRefused) << text;
    return reply.why.message();
  };
  for (const std::string& text :
       {error(400, "etcdserver: request is too large", 3),
        error(429, "grpc: received message larger than max (3600028 vs. 2097152)", 8)}) {
    EXPECT_NE(text.find("1600000 bytes"), std::string::npos) << text;
    EXPECT_NE(text.find("--max-request-bytes=4248576"), std::string::npos) << text;
  }
  EXPECT_NE(error(429, "etcdserver: mvcc: database space exceeded", 8).find("--auto-compaction-retention"),
            std::string::npos);
  EXPECT_NE(error(401, "etcdserver: user name is empty", 3).find("password"), std::string::npos);
  EXPECT_NE(error(403, "etcdserver: permission denied", 7).find("password"), std::string::npos);
}

TEST(EtcdJson, Entries) {
  const auto found = ParseRangeReply(Answer(
      200,
      "{" + kHeader +
          R"(,"kvs":[{"key":"YQ==","create_revision":"2","mod_revision":"5","version":"1","value":"eA==","lease":"9041998665496463621"}],"count":"1"})"));
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(**found, (KvEntry{"x", 2, 5, 9041998665496463621}));
  const auto empty = ParseRangeReply(Answer(
      200,
      "{" + kHeader + R"(,"kvs":[{"key":"YQ==","create_revision":"2","mod_revision":"5"}],"count":"1"})"));
  EXPECT_EQ((*empty)->value, "");
  const auto missing = ParseRangeReply(Answer(200, "{" + kHeader + "}"));
  ASSERT_TRUE(missing.ok());
  EXPECT_FALSE(missing->has_value());
  for (const char* kvs : {R"([{}])", R"([])", R"({})", R"([{"create_revision":"2","mod_revision":"1"}])",
                          R"([{"create_revision":"2","mod_revision":"2","value":"?"}])", R"([1])"})
    EXPECT_FALSE(ParseRangeReply(Answer(200, "{" + kHeader + R"(,"kvs":)" + kvs + "}")).ok()) << kvs;
  EXPECT_FALSE(ParseRangeReply(Answer(404, "404 page not found")).ok());
}

TEST(EtcdJson, Leases) {
  EXPECT_EQ(*ParseLeaseGrantReply(Answer(200, "{" + kHeader + R"(,"ID":"42","TTL":"5"})")), 42);
  EXPECT_FALSE(ParseLeaseGrantReply(Answer(200, "{" + kHeader + "}")).ok());
  EXPECT_EQ(*ParseLeaseKeepAliveReply(Answer(200, R"({"result":{)" + kHeader +
                                                      R"(,"ID":"42","TTL":"5"}})"
                                                      "\n")),
            5);
  EXPECT_EQ(*ParseLeaseKeepAliveReply(Answer(200, R"({"result":{)" + kHeader +
                                                      R"(,"ID":"42"}})"
                                                      "\n")),
            0);
  EXPECT_FALSE(
      ParseLeaseKeepAliveReply(
          Answer(503, R"({"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader"}})"))
          .ok());
  EXPECT_TRUE(ParseLeaseRevokeReply(Answer(200, "{" + kHeader + "}")).ok());
  EXPECT_TRUE(ParseLeaseRevokeReply(
                  Answer(404, R"({"error":"etcdserver: requested lease not found","message":"x","code":5})"))
                  .ok());
  EXPECT_FALSE(ParseLeaseRevokeReply(Answer(503, "")).ok());
}

TEST(EtcdJson, ALeaseThatIsGoneOrOverHasNoTimeLeft) {
  const auto left = [](int status, const std::string& body) {
    return ParseLeaseKeepAliveReply(Answer(status, body));
  };
  const auto gone =
      left(404, R"({"error":{"grpc_code":5,"http_code":404,"message":"requested lease not found"}})");
  ASSERT_TRUE(gone.ok()) << gone.status().ToString();
  EXPECT_EQ(*gone, 0);
  EXPECT_EQ(*left(200, R"({"result":{)" + kHeader + R"(,"ID":"42","TTL":"-1"}})"), 0);
  EXPECT_FALSE(left(200, R"({"result":{)" + kHeader + R"(,"ID":"42","TTL":"5s"}})").ok()) << "no number";
}

TEST(EtcdJson, AMemberThatHasTooMuchToDoIsNotTheLastToAsk) {
  EXPECT_TRUE(AnotherMayKnow(Answer(429, R"({"message":"etcdserver: too many requests","code":8})")));
  EXPECT_FALSE(AnotherMayKnow(Answer(400, R"({"message":"etcdserver: key is not provided","code":3})")));
}

}  // namespace
}  // namespace cairn::scheduler
