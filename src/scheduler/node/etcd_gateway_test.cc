// The gateway against members that are up, down, silent or rude. What they say is a script; the
// real etcd is in tests/fault.
#include "scheduler/node/etcd_gateway.h"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

namespace cairn::scheduler {
namespace {
namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;

const std::string kMissing = R"({"header":{"revision":"3"}})";
const std::string kSucceeded = R"({"header":{"revision":"4"},"succeeded":true})";

// One connection after the other; the script gives the answer to a request, or hangs up.
class Member {
 public:
  struct Say {
    enum Kind { kAnswer, kHangUp, kNothing } kind = kAnswer;
    int status = 200;
    std::string body;
  };
  using Script = std::function<Say(const std::string& target)>;

  explicit Member(Script script)
      : script_(std::move(script)), acceptor_(io_, {asio::ip::make_address("127.0.0.1"), 0}) {
    port_ = acceptor_.local_endpoint().port();
    Accept();
    thread_ = std::thread([this] { io_.run(); });
  }
  ~Member() {
    io_.stop();
    thread_.join();
  }
  wire::Endpoint endpoint() const { return {"127.0.0.1", port_}; }
  int requests() const { return requests_; }
  int connections() const { return connections_; }

 private:
  struct Session {
    explicit Session(tcp::socket s) : socket(std::move(s)) {}
    tcp::socket socket;
    boost::beast::flat_buffer buffer;
    http::request<http::string_body> request;
    http::response<http::string_body> response;
  };
  void Accept() {
    acceptor_.async_accept([this](boost::system::error_code error, tcp::socket socket) {
      if (error) return;
      ++connections_;
      Read(std::make_shared<Session>(std::move(socket)));
      Accept();
    });
  }
  void Read(const std::shared_ptr<Session>& session) {
    session->request = {};
    http::async_read(session->socket, session->buffer, session->request,
                     [this, session](boost::system::error_code error, size_t) {
                       if (error) return;
                       ++requests_;
                       Answer(session, script_(std::string(session->request.target())));
                     });
  }
  void Answer(const std::shared_ptr<Session>& session, const Say& say) {
    if (say.kind == Say::kHangUp) return session->socket.close();
    if (say.kind == Say::kNothing) {
      silent_.push_back(session);  // open, and no more
      return;
    }
    session->response = {static_cast<http::status>(say.status), 11};
    session->response.body() = say.body;
    session->response.prepare_payload();
    http::async_write(session->socket, session->response,
                      [this, session](boost::system::error_code error, size_t) {
                        if (!error) Read(session);
                      });
  }

  const Script script_;
  asio::io_context io_;
  tcp::acceptor acceptor_;
  uint16_t port_ = 0;
  std::atomic<int> requests_{0}, connections_{0};
  std::vector<std::shared_ptr<Session>> silent_;
  std::thread thread_;
};

Member::Script Always(const std::string& body, int status = 200) {
  return [=](const std::string&) { return Member::Say{Member::Say::kAnswer, status, body}; };
}
Member::Script Never(Member::Say::Kind how) {
  return [=](const std::string&) { return Member::Say{how, 0, ""}; };
}
// A port that nobody listens on.
wire::Endpoint Nobody() {
  asio::io_context io;
  tcp::acceptor acceptor(io, {asio::ip::make_address("127.0.0.1"), 0});
  return {"127.0.0.1", acceptor.local_endpoint().port()};
}
constexpr int64_t kLongUs = 30'000'000, kShortUs = 300'000;

TEST(EtcdGateway, KeepsItsConnection) {
  Member member([](const std::string& target) {
    return Member::Say{Member::Say::kAnswer, 200, target == "/v3/kv/txn" ? kSucceeded : kMissing};
  });
  EtcdGateway kv({member.endpoint()});
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(kv.Range("a", kLongUs).ok());
    EXPECT_EQ(kv.Txn({}, kLongUs).outcome, KvOutcome::kSucceeded);
  }
  EXPECT_EQ(member.connections(), 1);
  EXPECT_EQ(member.requests(), 6);
}

TEST(EtcdGateway, AsksTheNextMemberWhenOneIsDown) {
  Member member(Always(kSucceeded));
  EtcdGateway kv({Nobody(), member.endpoint()});
  EXPECT_EQ(kv.Txn({}, kLongUs).outcome, KvOutcome::kSucceeded) << "the first one can't have got it";
  EXPECT_TRUE(kv.Range("a", kLongUs).ok());
  EXPECT_EQ(member.connections(), 1) << "it stays with the one that answers";
}

TEST(EtcdGateway, ATransactionThatMayHaveArrivedIsNotSentAgain) {
  Member rude(Never(Member::Say::kHangUp)), good(Always(kSucceeded));
  EtcdGateway kv({rude.endpoint(), good.endpoint()});
  const KvTxnReply reply = kv.Txn({}, kLongUs);
  EXPECT_EQ(reply.outcome, KvOutcome::kUnknown);
  EXPECT_NE(reply.why.message().find(wire::ToString(rude.endpoint())), std::string::npos)
      << reply.why.message();
  EXPECT_EQ(good.requests(), 0);
  EXPECT_EQ(kv.Txn({}, kLongUs).outcome, KvOutcome::kSucceeded)
      << "the next call begins with the next member";
}

TEST(EtcdGateway, AQuestionIsAskedOfEveryMember) {
  Member rude(Never(Member::Say::kHangUp)),
      leaderless(Always(R"({"message":"etcdserver: no leader","code":14})", 503)), good(Always(kMissing));
  EtcdGateway kv({rude.endpoint(), leaderless.endpoint(), Nobody(), good.endpoint()});
  EXPECT_TRUE(kv.Range("a", kLongUs).ok());
  EXPECT_EQ(rude.requests(), 1);
  EXPECT_EQ(leaderless.requests(), 1);
}

TEST(EtcdGateway, AMemberThatHangsLeavesTimeForTheOthers) {
  Member silent(Never(Member::Say::kNothing)), good(Always(kMissing));
  EtcdGateway kv({silent.endpoint(), good.endpoint()});
  EXPECT_TRUE(kv.Range("a", kShortUs).ok());
}

TEST(EtcdGateway, EveryCallEndsInTimeAndNamesTheMembers) {
  Member silent(Never(Member::Say::kNothing));
  const wire::Endpoint nobody = Nobody();
  EtcdGateway kv({silent.endpoint(), nobody});
  const auto range = kv.Range("a", kShortUs);
  ASSERT_FALSE(range.ok());
  for (const wire::Endpoint& member : {silent.endpoint(), nobody})
    EXPECT_NE(range.status().message().find(wire::ToString(member)), std::string::npos)
        << range.status().message();
  EXPECT_EQ(kv.Txn({}, kShortUs).outcome, KvOutcome::kUnknown);
  EXPECT_FALSE(kv.LeaseGrant(5, kShortUs).ok());
  EXPECT_FALSE(kv.LeaseKeepAlive(1, kShortUs).ok());
  EXPECT_FALSE(kv.LeaseRevoke(1, kShortUs).ok());
}

TEST(EtcdGateway, GivesUpWhenItIsToldTo) {
  Member silent(Never(Member::Say::kNothing));
  std::atomic<bool> stop{false};
  EtcdGateway kv({silent.endpoint()}, [&] { return stop.load(); });
  std::thread stopper([&] {
    while (silent.requests() == 0) std::this_thread::yield();
    stop = true;
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(kv.Range("a", kLongUs).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::microseconds(kLongUs))
      << "it did not wait";
  stopper.join();
}

TEST(EtcdGateway, SomethingElseOnThatPortIsNamedAsSuch) {
  Member web(Always("<html>404</html>", 404));
  EtcdGateway kv({web.endpoint()});
  const auto range = kv.Range("a", kLongUs);
  ASSERT_FALSE(range.ok());
  EXPECT_NE(range.status().message().find("client port"), std::string::npos) << range.status().message();
}

}  // namespace
}  // namespace cairn::scheduler
