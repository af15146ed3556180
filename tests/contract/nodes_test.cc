// Scheduler and server as running nodes: they end when the job ends, share a port, survive a
// scheduler's restart, and say why where they can't.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cairn/client.h"
#include "contract/peers.h"
#include "scheduler/node/scheduler_node.h"
#include "server/node/server_node.h"

namespace cairn {
namespace {
using scheduler::SchedulerNode;
using scheduler::SchedulerNodeOptions;
using server::ServerNode;
using server::ServerNodeOptions;
using transport::Silent;

SchedulerNodeOptions ForScheduler(uint32_t servers, uint32_t workers) {
  SchedulerNodeOptions options;
  options.core.expected_servers = servers;
  options.core.expected_workers = workers;
  options.core.slot_count = 16;
  options.log = Silent();
  return options;
}

ServerNodeOptions ForServer(const wire::Endpoint& scheduler) {
  ServerNodeOptions options;
  options.control.scheduler = scheduler;
  options.log = Silent();
  return options;
}

ClientOptions ForClient(const wire::Endpoint& scheduler) {
  ClientOptions options;
  options.scheduler_host = scheduler.host;
  options.scheduler_port = scheduler.port;
  options.connect_timeout_ms = options.call_timeout_ms = 30'000;
  options.log = Silent();
  return options;
}

template <class T>
T Must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return std::move(result).value();
}

class Directory {
 public:
  Directory() {
    char name[] = "/tmp/cairn-nodes-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void AddOne(DenseTable& table, int64_t expected) {
  const std::vector<int64_t> one(table.size(), 1);
  std::vector<int64_t> sum(table.size());
  const Status status = table.PushPull(one, sum).Wait();
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(sum, std::vector<int64_t>(table.size(), expected));
}

TableSpec Counts() {
  return {.name = "counts", .element = ElementType::kInt64, .optimizer = OptimizerKind::kSum, .size = 5000};
}

TEST(Nodes, TheLastFinishEndsSchedulerAndServers) {
  auto scheduler = Must(SchedulerNode::Start(ForScheduler(2, 1)));
  auto zero = Must(ServerNode::Start(ForServer(scheduler->endpoint())));
  auto one = Must(ServerNode::Start(ForServer(scheduler->endpoint())));
  auto client = Must(Client::Connect(ForClient(scheduler->endpoint())));
  auto table = Must(client->CreateDense(Counts()));
  AddOne(table, 1);
  EXPECT_TRUE(client->Finish().ok());
  EXPECT_EQ(zero->Wait(), Status::Ok());
  EXPECT_EQ(one->Wait(), Status::Ok());
  EXPECT_EQ(scheduler->Wait(), Status::Ok());
}

TEST(Nodes, StopEndsWait) {
  auto scheduler = Must(SchedulerNode::Start(ForScheduler(1, 1)));
  auto server = Must(ServerNode::Start(ForServer(scheduler->endpoint())));
  server->Stop();
  EXPECT_EQ(server->Wait(), Status::Ok());
  scheduler->Stop();
  EXPECT_EQ(scheduler->Wait(), Status::Ok());
}

// Only the server's port is open to others: the scheduler lives behind it.
TEST(Nodes, ASchedulerMayShareAServersPort) {
  auto options = ForServer({});
  // The port is needed before it is known: take a free one.
  uint16_t port = Must(ServerNode::Start(ForServer({"127.0.0.1", 1})))->endpoint().port;
  auto core = ForScheduler(1, 1);
  core.listen = false;
  core.advertised = {"127.0.0.1", port};
  auto scheduler = Must(SchedulerNode::Start(core));
  options.port = port;
  options.control.scheduler = {"127.0.0.1", port};
  options.on_other_connection = [&](transport::AcceptedConnection c) { scheduler->Adopt(std::move(c)); };
  auto server = Must(ServerNode::Start(options));
  auto client = Must(Client::Connect(ForClient(scheduler->endpoint())));
  auto table = Must(client->CreateDense(Counts()));
  AddOne(table, 1);
  EXPECT_TRUE(client->Finish().ok());
  EXPECT_EQ(server->Wait(), Status::Ok());
  EXPECT_EQ(scheduler->Wait(), Status::Ok());
}

TEST(Nodes, ASchedulerThatRestartsFindsTheJobAgain) {
  Directory directory;
  auto options = ForScheduler(1, 1);
  options.state_dir = directory.path();
  auto scheduler = Must(SchedulerNode::Start(options));
  options.port = scheduler->endpoint().port;
  auto server = Must(ServerNode::Start(ForServer(scheduler->endpoint())));
  auto client = Must(Client::Connect(ForClient(scheduler->endpoint())));
  auto table = Must(client->CreateDense(Counts()));
  AddOne(table, 1);
  scheduler.reset();
  AddOne(table, 2);  // async training goes on without it
  scheduler = Must(SchedulerNode::Start(options));
  AddOne(table, 3);
  EXPECT_TRUE(client->Barrier().ok());
  EXPECT_TRUE(client->Finish().ok());
  EXPECT_EQ(server->Wait(), Status::Ok());
  EXPECT_EQ(scheduler->Wait(), Status::Ok());
}

TEST(Nodes, ALostServerEndsEveryCallWithItsName) {
  auto scheduler = Must(SchedulerNode::Start(ForScheduler(1, 1)));
  auto server = Must(ServerNode::Start(ForServer(scheduler->endpoint())));
  auto client = Must(Client::Connect(ForClient(scheduler->endpoint())));
  auto table = Must(client->CreateDense(Counts()));
  AddOne(table, 1);
  const wire::Endpoint at = server->endpoint();
  server.reset();
  auto again = ForServer(scheduler->endpoint());
  again.port = at.port;
  auto other = Must(ServerNode::Start(again));  // the same address, but empty
  std::vector<int64_t> out(table.size());
  const Status status = table.Pull(out).Wait();
  EXPECT_EQ(status.code(), Code::kJobFailed) << status.ToString();
  EXPECT_NE(status.message().find(wire::ToString(at)), std::string::npos) << status.ToString();
  EXPECT_EQ(scheduler->Wait().code(), Code::kJobFailed);
}

TEST(Nodes, AServerRefusesWhatIsNotForIt) {
  auto scheduler = Must(SchedulerNode::Start(ForScheduler(1, 1)));
  auto server = Must(ServerNode::Start(ForServer(scheduler->endpoint())));
  BufferPool pool;
  const auto refusal_to = [&](const wire::FramePtr& first) {
    transport::RawPeer peer(server->endpoint());
    peer.Send(*first, pool);
    const auto frame = Must(wire::Parse(peer.ReadToEnd(), wire::kMaxBodyBytes, pool));
    return std::get<wire::Refusal>(Must(wire::DecodeControl(frame.header, frame.body()))).text;
  };
  EXPECT_NE(
      refusal_to(wire::EncodeControl(wire::StatusRequest{1}, pool)).find("this is a server, not a scheduler"),
      std::string::npos);
  EXPECT_NE(refusal_to(wire::EncodeControl(wire::Hello{.thread = 7}, pool)).find("not a thread 7"),
            std::string::npos);
  EXPECT_NE(refusal_to(wire::EncodeControl(wire::Hello{.thread = 1}, pool)).find("1 threads, not a thread 1"),
            std::string::npos)
      << "the first that there is none of";
  EXPECT_NE(refusal_to(transport::ValuesFrame(1, 100, pool)).find("must be a Hello"), std::string::npos);
}

TEST(Nodes, AServerIsReachedWhereItSays) {
  auto scheduler = Must(SchedulerNode::Start(ForScheduler(1, 1)));
  auto options = ForServer(scheduler->endpoint());
  auto server = Must(ServerNode::Start(options));
  EXPECT_EQ(server->endpoint().host, options.host);
  EXPECT_NE(server->endpoint().port, 0);
  options.advertise_host = "cairn.example";
  options.advertise_port = 4711;
  auto behind = Must(ServerNode::Start(options));
  EXPECT_EQ(behind->endpoint(), (wire::Endpoint{"cairn.example", 4711}));
}

TEST(Nodes, BadOptionsAreErrors) {
  auto scheduler = Must(SchedulerNode::Start(ForScheduler(1, 1)));
  auto options = ForScheduler(1, 1);
  options.port = scheduler->endpoint().port;
  EXPECT_EQ(SchedulerNode::Start(options).status().code(), Code::kUnavailable);
  auto server = ForServer(scheduler->endpoint());
  for (uint32_t threads : {0u, 1025u}) {
    server.threads = threads;
    EXPECT_EQ(ServerNode::Start(server).status().code(), Code::kInvalidArgument) << threads;
  }
}

TEST(Nodes, AServerMayHaveAsManyThreadsAsTheSchedulerLetsIn) {
  auto scheduler = Must(SchedulerNode::Start(ForScheduler(1, 1)));
  auto server = ForServer(scheduler->endpoint());
  server.threads = 300;
  EXPECT_TRUE(ServerNode::Start(server).ok());
}

}  // namespace
}  // namespace cairn
