// A server under `ulimit -v`: what it has no memory for is refused, and it lives on.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "cairn/client.h"
#include "child_process.h"
#include "contract/peers.h"
#include "raw_peer.h"
#include "scheduler/node/scheduler_node.h"
#include "server/node/server_node.h"

namespace cairn {
namespace {

using scheduler::SchedulerNode;
using scheduler::SchedulerNodeOptions;
using server::ServerNode;
using server::ServerNodeOptions;
using testing::RawPeer;
using transport::Child;
using transport::Silent;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // their shadow memory alone is beyond any limit
#else
constexpr bool kSanitized = false;
#endif
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kRoom = 1024 * kMiB;  // for the server, above what this program has anyway

// As `ulimit -v` would.
void LimitAddressSpace(uint64_t more) {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t most = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + more;
  const rlimit limit{most, most};
  if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(2);
}

void Serve(int in, int out) {
  const auto port = transport::Hear<uint16_t>(in);
  LimitAddressSpace(kRoom);
  ServerNodeOptions options;
  options.control.scheduler = {"127.0.0.1", port};
  options.log = Silent();
  auto node = ServerNode::Start(options);
  transport::Tell(out, node.ok());
  if (node.ok()) (void)(*node)->Wait();
}

class MemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP();
    server_ = std::make_unique<Child>(Serve);
    SchedulerNodeOptions options;
    options.core.expected_workers = 2;
    options.core.slot_count = 16;
    options.log = Silent();
    scheduler_ = SchedulerNode::Start(options).value();
    server_->Tell(scheduler_->endpoint().port);
    ASSERT_TRUE(server_->Hear<bool>());
    ClientOptions wanted;
    wanted.scheduler_port = scheduler_->endpoint().port;
    wanted.rank = 0;
    wanted.connect_timeout_ms = wanted.call_timeout_ms = 60'000;
    wanted.log = Silent();
    auto honest = std::async(std::launch::async, [&] { return Client::Connect(wanted); });
    // The other worker says what it likes.
    control_ = std::make_unique<RawPeer>(scheduler_->endpoint().port);
    wire::Register hello;
    hello.uid = 77;
    hello.wanted_rank = 1;
    hello.endpoint = {"127.0.0.1", 0};
    ASSERT_TRUE(control_->Send(wire::ControlMessage(hello)));
    const auto registered = control_->Await<wire::Registered>();
    ASSERT_TRUE(registered);
    rogue_ = registered->incarnation;
    client_ = honest.get().value();
    rows_ = client_->CreateSparse({.name = "rows", .kind = TableKind::kSparse, .dim = 4}).value();
  }

  wire::ClusterState State() {
    wire::Heartbeat beat;
    beat.incarnation = rogue_;
    beat.uid = 77;
    EXPECT_TRUE(control_->Send(wire::ControlMessage(beat)));
    wire::ClusterState state;
    for (int i = 0; i < 50 && state.tables.empty(); ++i) {
      const auto message = control_->Await<wire::StateMessage>();
      if (message) state = message->state;
    }
    return state;
  }

  void ExpectAlive() {
    const std::vector<RowKey> keys = {1, 2, 3};
    const std::vector<float> add(12, 1.0f);
    std::vector<float> before(12), after(12);
    ASSERT_TRUE(rows_.Pull(keys, std::span<float>(before)).Wait().ok());
    ASSERT_TRUE(rows_.Push(keys, std::span<const float>(add)).Wait().ok());
    ASSERT_TRUE(rows_.Pull(keys, std::span<float>(after)).Wait().ok());
    for (size_t i = 0; i < 12; ++i) EXPECT_EQ(after[i], before[i] + 1.0f);
  }

  std::unique_ptr<Child> server_;
  std::unique_ptr<SchedulerNode> scheduler_;
  std::unique_ptr<RawPeer> control_;
  std::unique_ptr<Client> client_;
  SparseTable rows_;
  Incarnation rogue_;
};

TEST_F(MemoryTest, ATableThatDoesNotFitIsRefused) {
  TableSpec spec{.name = "big", .optimizer = OptimizerKind::kAdam};
  spec.size = kRoom / 2 / sizeof(float);  // half of the room, three times
  const auto refused = client_->CreateDense(spec);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_NE(refused.status().message().find("needs 1.5 GiB on server 0"), std::string::npos)
      << refused.status().message();
  EXPECT_NE(refused.status().message().find("ulimit -v"), std::string::npos) << refused.status().message();
  spec.size = 1000;
  EXPECT_TRUE(client_->CreateDense(spec).ok());
  ExpectAlive();
}

TEST_F(MemoryTest, ClaimsOnManyConnectionsTakeNothingFromOthers) {
  const wire::ClusterState state = State();
  ASSERT_EQ(state.tables.size(), 1u);
  wire::Hello hello;
  hello.cluster_id = state.cluster_id;
  hello.incarnation = rogue_;
  hello.server_incarnation = state.servers[0].incarnation;
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (int i = 0; i < 40; ++i) {
    peers.push_back(std::make_unique<RawPeer>(state.servers[0].endpoint.port));
    ASSERT_TRUE(peers.back()->Send(wire::ControlMessage(hello)));
    ASSERT_TRUE(peers.back()->Await<wire::HelloReply>());
    // Eight million rows, and not one of them is sent.
    wire::FrameHeader claim;
    claim.type = wire::FrameType::kPush;
    claim.request_id = 1;
    claim.incarnation = rogue_.value;
    claim.table = state.tables[0].id.value;
    claim.entry_count = 1;
    claim.key_count = 8'000'000;
    claim.body_bytes = 8'000'000 * (8 + 16);
    ASSERT_TRUE(peers.back()->SendBytes(std::as_bytes(std::span(&claim, 1))));
  }
  // The server reads them in turn: a Hello on a later connection is answered after those before it.
  RawPeer last(state.servers[0].endpoint.port);
  ASSERT_TRUE(last.Send(wire::ControlMessage(hello)));
  ASSERT_TRUE(last.Await<wire::HelloReply>());
  ExpectAlive();
  // A large push of somebody else passes too.
  std::vector<RowKey> keys(100'000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  const std::vector<float> add(4 * keys.size(), 1.0f);
  EXPECT_TRUE(rows_.Push(keys, std::span<const float>(add)).Wait().ok());
}

}  // namespace
}  // namespace cairn
