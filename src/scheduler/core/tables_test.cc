// Tables: made once, dropped once, answered when the servers hold them (rule 8).
#include <algorithm>

#include <nlohmann/json.hpp>

#include "scheduler/core/fake_cluster.h"
#include "scheduler/rules/durable.h"
#include "scheduler/rules/tables.h"

namespace cairn::scheduler {
namespace {

struct Tables : ::testing::Test {
  FakeCluster c{FakeCluster::Options(2, 2)};
  FakeNode s0, s1, w0, w1;
  void SetUp() override {
    c.Start();
    s0 = c.Server(9000), s1 = c.Server(9001), w0 = c.Worker(1), w1 = c.Worker(2);
    for (FakeNode* node : {&s0, &s1, &w0, &w1}) c.Beat(*node);
  }
  void Create(const FakeNode& worker, uint64_t request, const TableSpec& spec) {
    c.Tell(worker.conn, wire::CreateTable{request, worker.incarnation, spec});
  }
  void Drop(const FakeNode& worker, uint64_t request, const std::string& name) {
    c.Tell(worker.conn, wire::DropTable{request, worker.incarnation, name});
  }
  std::optional<wire::TableReply> Reply(const FakeNode& worker) {
    return c.Last<wire::TableReply>(worker.conn);
  }
  void ServersCatchUp() { c.Beat(s0), c.Beat(s1); }
};

TEST_F(Tables, ReplyComesWhenEveryServerHoldsTheVersion) {
  Create(w0, 1, DenseSync("w"));
  EXPECT_FALSE(Reply(w0));
  c.Beat(s0);
  EXPECT_FALSE(Reply(w0));
  c.Beat(s1);
  ASSERT_TRUE(Reply(w0));
  EXPECT_EQ(Reply(w0)->code, Code::kOk);
  EXPECT_EQ(Reply(w0)->table, TableId(1));
  EXPECT_EQ(c.state().FindTable(TableId(1))->created_view, ViewNumber(1));
  Create(w1, 1, DenseSync("w"));
  EXPECT_EQ(Reply(w1)->table, TableId(1)) << "idempotent by name";
  EXPECT_EQ(c.state().tables.size(), 1u);
}

TEST_F(Tables, AnotherSpecUnderTheNameNamesTheFields) {
  Create(w0, 1, DenseSync("w"));
  TableSpec other = DenseSync("w", 200);
  other.mode = Mode::kAsync;
  Create(w1, 1, other);
  ASSERT_TRUE(Reply(w1));
  EXPECT_EQ(Reply(w1)->code, Code::kAlreadyExists);
  EXPECT_NE(Reply(w1)->text.find("mode (sync there, async asked for), size (100 there, 200 asked for)"),
            std::string::npos)
      << Reply(w1)->text;
}

TEST_F(Tables, IdsAreNeverReused) {
  Create(w0, 1, DenseSync("a"));
  ServersCatchUp();
  Drop(w0, 2, "a");
  EXPECT_EQ(Reply(w0)->request, 1u);
  ServersCatchUp();
  EXPECT_EQ(Reply(w0)->request, 2u);
  EXPECT_EQ(Reply(w0)->code, Code::kOk);
  Create(w0, 3, DenseSync("a"));
  ServersCatchUp();
  EXPECT_EQ(Reply(w0)->table, TableId(2));
}

TEST_F(Tables, LateCopiesOfRequestsChangeNothing) {
  Create(w0, 1, DenseSync("a"));
  ServersCatchUp();
  Drop(w0, 2, "a");
  ServersCatchUp();
  Create(w0, 1, DenseSync("a"));  // a late copy of the first
  EXPECT_EQ(c.state().tables.size(), 0u);
  Create(w1, 1, DenseSync("a"));
  ServersCatchUp();
  Drop(w0, 2, "a");  // a late copy of the drop
  EXPECT_EQ(c.state().tables.size(), 1u);
  EXPECT_EQ(Reply(w0)->code, Code::kOk);
  c.Restart();
  for (FakeNode* node : {&s0, &s1, &w0, &w1}) c.Beat(*node);
  Drop(w0, 2, "a");
  ServersCatchUp();
  EXPECT_EQ(c.state().tables.size(), 1u) << "also after a restart";
  EXPECT_EQ(Reply(w0)->code, Code::kOk);
}

TEST_F(Tables, DropOfAnUnknownNameIsNotFoundAndASecondDropIsFine) {
  Drop(w0, 1, "nothing");
  EXPECT_EQ(Reply(w0)->code, Code::kNotFound);
  Create(w0, 2, DenseSync("a"));
  Drop(w0, 3, "a");
  Drop(w1, 1, "a");
  ServersCatchUp();  // it is made
  ServersCatchUp();  // it is dropped
  EXPECT_EQ(Reply(w1)->code, Code::kOk);
}

// Those of one message, and those that come while a record is not confirmed.
TEST_F(Tables, ManyAreMadeInOneRecord) {
  const StateVersion before = c.state().version;
  c.Tell(w0.conn, wire::CreateTables{1, w0.incarnation, {DenseSync("a"), DenseSync("b"), DenseSync("a")}});
  EXPECT_EQ(c.state().tables.size(), 2u);
  EXPECT_EQ(c.state().version, before.Next());
  EXPECT_FALSE(Reply(w0));
  for (uint64_t request = 2; request < 300; ++request)
    Create(w1, request, DenseSync("t" + std::to_string(request)));
  Create(w0, 2, DenseSync("b"));
  EXPECT_EQ(c.state().tables.size(), 2u) << "they wait for the record before";
  ServersCatchUp();
  EXPECT_EQ(c.Last<wire::TableReply>(w0.conn)->code, Code::kOk);
  EXPECT_EQ(c.state().tables.size(), 300u);
  EXPECT_EQ(c.state().version, before.Next().Next());
  EXPECT_EQ(Reply(w1), std::nullopt);
  ServersCatchUp();
  EXPECT_EQ(std::count_if(c.network.sent[w1.conn].begin(), c.network.sent[w1.conn].end(),
                          [](const auto& m) {
                            const auto* reply = std::get_if<wire::TableReply>(&m);
                            return reply != nullptr && reply->code == Code::kOk && reply->table != TableId(0);
                          }),
            298);
}

TEST_F(Tables, OneThatIsWrongLetsNoneBeMade) {
  const StateVersion before = c.state().version;
  c.Tell(w0.conn, wire::CreateTables{1, w0.incarnation, {DenseSync("a"), {.name = "b", .size = 0}}});
  EXPECT_EQ(Reply(w0)->code, Code::kInvalidArgument);
  c.Tell(w0.conn, wire::CreateTables{2, w0.incarnation, {DenseSync("a"), DenseSync("a", 200)}});
  EXPECT_EQ(Reply(w0)->code, Code::kAlreadyExists);
  EXPECT_NE(Reply(w0)->text.find("\"a\" is already there with another size (100 there, 200 asked for)"),
            std::string::npos)
      << Reply(w0)->text;
  for (uint64_t request = 3; request < 3 + 7; ++request) {
    std::vector<TableSpec> specs;
    for (int i = 0; i < 512; ++i)
      specs.push_back(DenseSync(std::to_string(request) + "/" + std::to_string(i)));
    c.Tell(w0.conn, wire::CreateTables{request, w0.incarnation, specs});
    ServersCatchUp();
    ASSERT_EQ(Reply(w0)->code, Code::kOk);
  }
  Create(w0, 10, DenseSync("one more"));
  ServersCatchUp();
  std::vector<TableSpec> specs;
  for (int i = 0; i < 512; ++i) specs.push_back(DenseSync("last/" + std::to_string(i)));
  c.Tell(w0.conn, wire::CreateTables{11, w0.incarnation, specs});
  EXPECT_EQ(Reply(w0)->code, Code::kResourceExhausted);
  EXPECT_EQ(c.state().tables.size(), 7u * 512 + 1);
  EXPECT_EQ(c.state().version, StateVersion(before.value + 8));
}

TEST_F(Tables, LateCopyOfABatchChangesNothing) {
  const wire::CreateTables batch{1, w0.incarnation, {DenseSync("a"), DenseSync("b")}};
  c.Tell(w0.conn, batch);
  ServersCatchUp();
  Drop(w1, 1, "a");
  ServersCatchUp();
  c.Restart();
  for (FakeNode* node : {&s0, &s1, &w0, &w1}) c.Beat(*node);
  c.Tell(w0.conn, batch);
  ServersCatchUp();
  EXPECT_EQ(Reply(w0)->code, Code::kOk);
  EXPECT_EQ(c.state().tables.size(), 1u) << "also after a restart";
}

// Somebody whose record is awaited goes away: who waited for it goes on.
TEST_F(Tables, NobodyWaitsForTheRequestOfAWorkerThatIsGone) {
  Create(w0, 1, DenseSync("a"));
  Create(w1, 1, DenseSync("b"));
  EXPECT_EQ(c.state().tables.size(), 1u);
  c.scheduler->OnDisconnect(w0.conn, c.now_us);
  EXPECT_EQ(c.state().tables.size(), 2u);
}

TEST_F(Tables, CreationWaitsForAPendingView) {
  FakeNode w2 = c.Worker(3);
  ASSERT_EQ(c.state().pending_view, ViewNumber(2));
  Create(w0, 1, DenseSync("w"));
  EXPECT_TRUE(c.state().tables.empty());
  ServersCatchUp();  // the view is made, then the table
  ASSERT_EQ(c.state().tables.size(), 1u);
  EXPECT_EQ(c.state().tables[0].created_view, ViewNumber(2));
  ServersCatchUp();
  EXPECT_EQ(Reply(w0)->code, Code::kOk);
}

TEST_F(Tables, AnswerSurvivesANewConnectionAndARestart) {
  Create(w0, 1, DenseSync("w"));
  c.scheduler->OnDisconnect(w0.conn, c.now_us);
  c.Restart();
  w0.conn = c.NewConn();
  c.Beat(w0);
  Create(w0, 1, DenseSync("w"));
  EXPECT_FALSE(Reply(w0)) << "the servers have not been heard";
  ServersCatchUp();
  EXPECT_EQ(Reply(w0)->table, TableId(1));
}

TEST_F(Tables, BadSpecsAndDeadWorkersAreRefused) {
  Create(w0, 1, {.name = "x", .size = 0});
  EXPECT_EQ(Reply(w0)->code, Code::kInvalidArgument);
  Create(w0, 2, {.name = "", .size = 4});
  EXPECT_EQ(Reply(w0)->code, Code::kInvalidArgument);
  Create(w0, 3, {.name = "x", .element = ElementType::kInt64, .optimizer = OptimizerKind::kSgd, .size = 4});
  EXPECT_EQ(Reply(w0)->code, Code::kInvalidArgument);
  Create(w0, 4, {.name = "x", .mode = Mode::kAsync, .deterministic = true, .size = 4});
  EXPECT_EQ(Reply(w0)->code, Code::kInvalidArgument);
  c.Tell(w1.conn, wire::Leave{w1.incarnation});
  Create(w1, 1, DenseSync("x"));
  EXPECT_EQ(Reply(w1)->code, Code::kRetired);
}

TEST_F(Tables, SegmentsOfAllTablesTogetherHaveALimit) {
  TableSpec spec{.name = "a", .size = wire::kMaxSegments};
  for (uint64_t end = 1; end <= wire::kMaxSegments; ++end) spec.segments.push_back(end);
  uint64_t request = 0;
  for (const char* name : {"a", "b", "c", "d"}) {
    spec.name = name;
    Create(w0, ++request, spec);
    ServersCatchUp();
    ASSERT_EQ(Reply(w0)->code, Code::kOk) << name << ": " << Reply(w0)->text;
  }
  Create(w0, ++request, {.name = "e", .size = 5, .segments = {5}});
  EXPECT_EQ(Reply(w0)->code, Code::kResourceExhausted);
  EXPECT_NE(Reply(w0)->text.find("262145 segments, and 262144 is the limit: drop"), std::string::npos)
      << Reply(w0)->text;
  Create(w0, ++request, spec);  // there already
  EXPECT_EQ(Reply(w0)->code, Code::kOk);
  Create(w0, ++request, {.name = "f", .size = 5});
  ServersCatchUp();
  EXPECT_EQ(Reply(w0)->code, Code::kOk) << "a table without segments needs no room for them";
  Drop(w0, ++request, "a");
  ServersCatchUp();
  Create(w0, ++request, {.name = "e", .size = 5, .segments = {5}});
  ServersCatchUp();
  EXPECT_EQ(Reply(w0)->code, Code::kOk);
}

TEST_F(Tables, JobThatFailsAnswersWhatIsUnderWay) {
  Create(w0, 1, DenseSync("w"));
  c.Tell(c.NewConn(), wire::AbortJob{"enough"});
  EXPECT_EQ(Reply(w0)->code, Code::kJobFailed);
  EXPECT_EQ(Reply(w0)->text, "enough");
}

TEST_F(Tables, StatusShowsTheCluster) {
  Create(w0, 1, DenseSync("w"));
  c.Advance(1'000'000, {&s0, &s1, &w0, &w1});
  s0.beat.stats.pushes = 500;
  c.Advance(2'000'000, {&s0, &s1, &w0, &w1});
  s0.beat.stats.pushes = 1500;
  c.Advance(1'000'000, {&s0, &s1, &w0, &w1});
  const ConnId tool = c.NewConn();
  c.Tell(tool, wire::StatusRequest{11});
  auto reply = c.Last<wire::StatusReply>(tool);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->request, 11u);
  const auto json = nlohmann::json::parse(reply->json);
  EXPECT_EQ(json["phase"], "running");
  EXPECT_EQ(json["servers"].size(), 2u);
  EXPECT_EQ(json["servers"][0]["endpoint"], "10.0.1.1:9000");
  EXPECT_EQ(json["servers"][0]["slots"], 8);
  EXPECT_EQ(json["servers"][0]["stats"]["pushes"], 1500);
  EXPECT_GT(json["servers"][0]["pushes_per_s"].get<double>(), 0.0);
  EXPECT_EQ(json["workers"][1]["rank"], 1);
  EXPECT_EQ(json["tables"][0]["name"], "w");
  EXPECT_EQ(json["tables"][0]["mode"], "sync");
  EXPECT_EQ(json["barrier_open"], 0);
  EXPECT_EQ(json["stalled_rounds"].size(), 0u);
}

TEST_F(Tables, StatusNamesRoundsThatAreWaitedFor) {
  Create(w0, 1, DenseSync("w"));
  ServersCatchUp();
  s0.beat.stalled = {{TableId(1), Round(118), 11'000, 1, {1}}, {TableId(9), Round(1), 99'000, 1, {0}}};
  s1.beat.stalled = {{TableId(1), Round(118), 12'000, 1, {1}}};
  ServersCatchUp();
  c.now_us += 500'000;
  const ConnId tool = c.NewConn();
  c.Tell(tool, wire::StatusRequest{11});
  auto json = nlohmann::json::parse(c.Last<wire::StatusReply>(tool)->json);
  ASSERT_EQ(json["stalled_rounds"].size(), 1u) << "a table that is gone is not waited for";
  const auto& round = json["stalled_rounds"][0];
  EXPECT_EQ(round["table"], "w");
  EXPECT_EQ(round["round"], 118);
  EXPECT_EQ(round["seconds"], 12.5);
  EXPECT_EQ(round["missing_ranks"], std::vector<int>{1});
  s0.beat.stalled.clear(), s1.beat.stalled.clear();
  ServersCatchUp();
  c.Tell(tool, wire::StatusRequest{12});
  json = nlohmann::json::parse(c.Last<wire::StatusReply>(tool)->json);
  EXPECT_EQ(json["stalled_rounds"].size(), 0u);
}

TEST_F(Tables, AnswerGoesToWhereItWasLastAskedFrom) {
  Create(w0, 1, DenseSync("w"));
  const ConnId old = w0.conn;
  w0.conn = c.NewConn();
  c.Beat(w0);
  Create(w0, 1, DenseSync("w"));
  ServersCatchUp();
  EXPECT_TRUE(Reply(w0));
  EXPECT_FALSE(c.Last<wire::TableReply>(old));
}

TEST_F(Tables, AnswerToABatchNamesNoTable) {
  c.Tell(w0.conn, wire::CreateTables{1, w0.incarnation, {DenseSync("a"), DenseSync("b")}});
  ServersCatchUp();
  EXPECT_EQ(Reply(w0)->code, Code::kOk);
  EXPECT_EQ(Reply(w0)->table, TableId(0));
}

TEST(TableOperations, AreRememberedForEachWorkerByItself) {
  DurableState d;
  const Incarnation a(1), b(2);
  for (uint64_t request : {1, 2}) RememberOperation(d, a, request, TableId(1), 2);
  for (uint64_t request : {1, 2, 3}) RememberOperation(d, b, request, TableId(1), 2);
  for (uint64_t request : {1, 2}) EXPECT_NE(FindOperation(d, a, request), nullptr) << request;
  EXPECT_EQ(FindOperation(d, b, 1), nullptr) << "more than it may have under way";
  for (uint64_t request : {2, 3}) EXPECT_NE(FindOperation(d, b, request), nullptr) << request;
}

}  // namespace
}  // namespace cairn::scheduler
