// Forming and registration (rules 1 to 4).
#include <cstring>

#include "scheduler/core/fake_cluster.h"

namespace cairn::scheduler {
namespace {

TEST(Forming, MakesSlotMapViewAndPhaseWhenEverybodyIsThere) {
  FakeCluster c(FakeCluster::Options(2, 2));
  c.Start();
  FakeNode s0 = c.Server(9000, 2), w0 = c.Worker(1);
  EXPECT_EQ(c.state().phase, wire::Phase::kForming);
  c.Beat(w0);
  EXPECT_EQ(c.Last<wire::HeartbeatReply>(w0.conn)->awaiting,
            "waiting for 1 of 2 servers (server 1) and 1 of 2 workers (rank 1)");
  FakeNode w1 = c.Worker(2), s1 = c.Server(9001, 1);
  EXPECT_EQ(w1.rank, 1u);
  EXPECT_EQ(s1.rank, 1u);
  const wire::ClusterState& state = c.state();
  EXPECT_EQ(state.phase, wire::Phase::kRunning);
  EXPECT_EQ(state.view, ViewNumber(1));
  ASSERT_EQ(state.views.size(), 1u);
  EXPECT_TRUE(state.views[0].starts.empty());
  for (const wire::WorkerInfo& worker : state.workers) EXPECT_EQ(worker.join_view, ViewNumber(1));
  // 16 slots over the shards (0,s0) (0,s1) (1,s0), in contiguous runs.
  ASSERT_EQ(state.slots.size(), 16u);
  auto owner = [&](int slot) {
    return std::pair<int, int>(state.slots[slot].server, state.slots[slot].thread);
  };
  EXPECT_EQ(owner(0), std::make_pair(0, 0));
  EXPECT_EQ(owner(4), std::make_pair(0, 0));
  EXPECT_EQ(owner(5), std::make_pair(1, 0));
  EXPECT_EQ(owner(9), std::make_pair(1, 0));
  EXPECT_EQ(owner(10), std::make_pair(0, 1));
  EXPECT_EQ(owner(15), std::make_pair(0, 1));
  for (const wire::SlotOwner& slot : state.slots) {
    EXPECT_EQ(slot.epoch, 1u);
    EXPECT_EQ(slot.since, state.version);
  }
  // Everybody has been told.
  for (ConnId conn : {s0.conn, s1.conn, w0.conn, w1.conn})
    EXPECT_EQ(c.Last<wire::StateMessage>(conn)->state, state);
  EXPECT_TRUE(c.Logged("Bind to role=scheduler, id=1, ip=10.0.0.1, port=8118"));
  EXPECT_TRUE(c.Logged("Assign rank=8 to node role=server, ip=10.0.1.1, port=9000"));
  EXPECT_TRUE(c.Logged("Assign rank=11 to node role=worker, ip=10.0.2.1"));
  EXPECT_TRUE(c.Logged("the scheduler is connected to 2 workers and 2 servers"));
}

TEST(Registration, RepeatedGetsTheSameAnswerAndMakesNoRecord) {
  FakeCluster c(FakeCluster::Options(1, 2));
  c.Start();
  FakeNode worker = c.Worker(42);
  const size_t records = c.memory.records().size();
  FakeNode again = c.Worker(42);  // on another connection
  EXPECT_EQ(again.incarnation, worker.incarnation);
  EXPECT_EQ(again.rank, worker.rank);
  EXPECT_EQ(c.memory.records().size(), records);
  EXPECT_TRUE(c.Last<wire::StateMessage>(again.conn).has_value());
}

TEST(Registration, RestartedWorkerRetiresItsPredecessor) {
  FakeCluster c(FakeCluster::Options(1, 2));
  c.Start();
  FakeNode old = c.Worker(1, 1), fresh = c.Worker(2, 1);
  EXPECT_EQ(fresh.rank, 1u);
  EXPECT_GT(fresh.incarnation, old.incarnation);
  ASSERT_EQ(c.state().workers.size(), 1u);
  EXPECT_EQ(c.Last<wire::Refusal>(old.conn)->code, Code::kRetired);
  // A late copy of the old one's Register must not retire the new one.
  FakeNode ghost = c.Worker(1, 1);
  EXPECT_EQ(c.Last<wire::Refusal>(ghost.conn)->code, Code::kRetired);
  EXPECT_EQ(c.state().workers[0].incarnation, fresh.incarnation);
  c.Beat(old);
  EXPECT_EQ(c.Last<wire::Refusal>(old.conn)->code, Code::kRetired);
}

TEST(Registration, StrayCopyOfADeadNodesMessageDoesNotHitItsSuccessor) {
  FakeCluster c(FakeCluster::Options(1, 1));
  c.Start();
  FakeNode server = c.Server(9000), old = c.Worker(1, 0), fresh = c.Worker(2, 0);
  c.Beat(server), c.Beat(fresh);
  // A refusal names nobody: on the successor's connection it would be taken for its own.
  old.conn = fresh.conn;
  c.Beat(old);
  c.Tell(fresh.conn, old.hello);
  c.Tell(fresh.conn, wire::Leave{old.incarnation});
  c.Tell(fresh.conn, wire::CreateTable{1, old.incarnation, DenseSync("w")});
  EXPECT_EQ(c.Last<wire::Refusal>(fresh.conn).value_or(wire::Refusal{}).text, "");
  EXPECT_FALSE(c.Last<wire::TableReply>(fresh.conn).has_value());
  // A process that is really retired says so on a connection of its own.
  old.conn = c.NewConn();
  c.Beat(old);
  EXPECT_EQ(c.Last<wire::Refusal>(old.conn)->code, Code::kRetired);
}

TEST(Registration, RefusalsSayWhatToDo) {
  FakeCluster c(FakeCluster::Options(1, 2));
  c.Start();
  auto refused = [&](wire::Register request) {
    const ConnId conn = c.NewConn();
    c.Tell(conn, request);
    return c.Last<wire::Refusal>(conn).value_or(wire::Refusal{.code = Code::kOk});
  };
  wire::Register good{.role = wire::Role::kWorker, .uid = 5, .endpoint = {"h", 0}};
  auto with = [&](auto change) {
    wire::Register request = good;
    change(request);
    return refused(request);
  };
  EXPECT_EQ(with([](auto& r) { r.cluster_id = "another"; }).code, Code::kProtocol);
  EXPECT_EQ(with([](auto& r) { r.protocol_min = r.protocol_max = 9; }).code, Code::kProtocol);
  EXPECT_EQ(with([](auto& r) { r.uid = 0; }).code, Code::kInvalidArgument);
  EXPECT_EQ(with([](auto& r) { r.wanted_rank = -7; }).code, Code::kInvalidArgument);
  EXPECT_EQ(with([](auto& r) { r.role = wire::Role::kTool; }).code, Code::kInvalidArgument);
  EXPECT_EQ(with([](auto& r) { r.endpoint.host = "a\nb"; }).code, Code::kInvalidArgument);
  auto range = with([](auto& r) { r.wanted_rank = 65536; });
  EXPECT_EQ(range.code, Code::kInvalidArgument);
  EXPECT_EQ(range.text, "rank 65536 is outside 0..65535: give one in that range, or none to have it chosen");
  FakeNode server = c.Server(9000);
  auto extra = with([](auto& r) { r.role = wire::Role::kServer, r.endpoint = {"h", 9999}; });
  EXPECT_EQ(extra.code, Code::kInvalidArgument);
  EXPECT_NE(extra.text.find("expects 1 server"), std::string::npos) << extra.text;
  EXPECT_EQ(c.state().next_incarnation, Incarnation(2)) << "no refusal uses an incarnation up";
}

// Seed 600018913: a scheduler that had been replaced while the job was forming, and did not know it, sent a
// newcomer of the running job away for good.
TEST(Registration, OnlyAConfirmedLeaderRefusesANewcomerForGood) {
  FakeCluster c(FakeCluster::Options(1, 2));
  c.Start();
  c.Server(9000);
  const auto refused = [&](int32_t wanted) {
    const ConnId conn = c.NewConn();
    c.Tell(conn, wire::Register{.role = wire::Role::kServer,
                                .uid = 77,
                                .endpoint = {"h", 9999},
                                .threads = 1,
                                .wanted_rank = wanted});
    return c.Last<wire::Refusal>(conn);
  };
  for (int32_t wanted : {-1, 0, 5}) {
    c.store.confirm = Status(Code::kUnavailable, "etcd can't be asked: it is away");
    EXPECT_EQ(refused(wanted).value_or(wire::Refusal{}).code, Code::kUnavailable) << "it asks again";
    c.store.confirm = Status::Ok();
    EXPECT_EQ(refused(wanted).value_or(wire::Refusal{}).code, Code::kInvalidArgument);
  }
  EXPECT_TRUE(c.scheduler->fatal().ok());
  c.store.confirm = Status(Code::kRetired, "this scheduler no longer leads");
  EXPECT_FALSE(refused(-1).has_value()) << "the next scheduler may have a place";
  EXPECT_EQ(c.scheduler->fatal().code(), Code::kRetired);
}

TEST(Registration, ServersMayWantTheirIndex) {
  FakeCluster c(FakeCluster::Options(3, 1));
  c.Start();
  FakeNode b = c.Server(9001, 1, 1), a = c.Server(9000), d = c.Server(9002), taken = c.Server(9003, 1, 1);
  EXPECT_EQ(b.rank, 1u);
  EXPECT_EQ(a.rank, 0u);
  EXPECT_EQ(d.rank, 2u);
  EXPECT_EQ(taken.incarnation, Incarnation(0));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(c.state().servers[i].index, i);
}

TEST(Registration, WorkerBeyondTheExpectedJoinsWithTheNextRank) {
  FakeCluster c(FakeCluster::Options(1, 1));
  c.Start();
  FakeNode server = c.Server(9000), w0 = c.Worker(1), w1 = c.Worker(2);
  EXPECT_EQ(w1.rank, 1u);
  EXPECT_EQ(c.state().pending_view, ViewNumber(2));
}

TEST(Registration, WorkerBeyondTheExpectedDoesNotStandInForAMissingRank) {
  FakeCluster c(FakeCluster::Options(1, 2));
  c.Start();
  FakeNode server = c.Server(9000), w0 = c.Worker(1, 0), w5 = c.Worker(2, 5);
  EXPECT_EQ(w5.rank, 5u);
  EXPECT_EQ(c.state().phase, wire::Phase::kForming);
  FakeNode w1 = c.Worker(3, 1);
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
  EXPECT_EQ(c.state().workers.size(), 3u);
}

// Of two workers one dies silently before the job begins. As rank 2 its successor would wait for rank 0, for
// ever.
TEST(Registration, WorkerWithoutARankWaitsWhileAllRanksOfTheStartAreTaken) {
  FakeCluster c(FakeCluster::Options(2, 2));
  c.Start();
  FakeNode s0 = c.Server(9000), dead = c.Worker(1), w1 = c.Worker(2), successor = c.Worker(3);
  EXPECT_EQ(successor.incarnation, Incarnation(0));
  const auto refusal = c.Last<wire::Refusal>(successor.conn);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->code, Code::kUnavailable) << "it asks again";
  EXPECT_NE(refusal->text.find("has not begun, and it has the 2 workers that it begins with"),
            std::string::npos)
      << refusal->text;
  c.Advance(20'000'000, {&s0, &w1});
  successor = c.Worker(3);
  EXPECT_EQ(successor.rank, 0u);
  FakeNode s1 = c.Server(9001);
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
  EXPECT_EQ(c.Worker(4).rank, 2u) << "beyond those of the start";
}

TEST(Heartbeats, UnknownNodesAreToldToRegisterOrRetired) {
  FakeCluster c(FakeCluster::Options(1, 2));
  c.Start();
  FakeNode worker = c.Worker(1);
  FakeNode stranger = worker;
  stranger.conn = c.NewConn();
  stranger.beat.uid = 99;
  stranger.beat.incarnation = Incarnation(50);
  c.Beat(stranger);
  EXPECT_EQ(c.Last<wire::Refusal>(stranger.conn)->code, Code::kUnavailable);
  EXPECT_FALSE(c.Last<wire::HeartbeatReply>(stranger.conn).has_value());
}

TEST(Heartbeats, NodeThatIsBehindGetsTheState) {
  FakeCluster c(FakeCluster::Options(1, 2));
  c.Start();
  FakeNode worker = c.Worker(1);
  worker.conn = c.NewConn();  // reconnected
  c.Beat(worker, /*takes_state=*/false);
  EXPECT_EQ(c.Last<wire::StateMessage>(worker.conn)->state, c.state());
  const size_t sent = c.network.sent[worker.conn].size();
  c.Beat(worker, false);  // just sent: not again
  EXPECT_EQ(c.network.sent[worker.conn].size(), sent + 1);
  c.Advance(1'000'000);
  EXPECT_GE(c.network.sent[worker.conn].size(), sent + 2) << "resent by the tick";
  EXPECT_LE(c.network.sent[worker.conn].size(), sent + 4);
}

TEST(Protocol, BytesThatAreNoMessageCloseTheConnection) {
  FakeCluster c(FakeCluster::Options(1, 1));
  c.Start();
  wire::InFrame frame;
  frame.storage = c.pool.Get(64);
  std::memset(frame.storage.data(), 0xEE, 64);
  frame.header.body_bytes = 64;
  c.scheduler->OnMessage(ConnId(77), frame, c.now_us);
  EXPECT_EQ(c.network.closed, std::vector<ConnId>{ConnId(77)});
  c.Tell(ConnId(78), wire::Hello{});
  EXPECT_EQ(c.Last<wire::Refusal>(ConnId(78))->code, Code::kProtocol);
}

// What is told while a job forms does not grow with the square of the nodes.
TEST(Forming, ArrivalsAreToldTogether) {
  constexpr uint32_t kServers = 20, kWorkers = 180;
  FakeCluster c(FakeCluster::Options(kServers, kWorkers));
  c.Start();
  std::vector<FakeNode> nodes;
  auto arrive = [&](FakeNode node) {
    nodes.push_back(std::move(node));
    c.now_us += 1'000;
    c.Beat(nodes.back(), /*takes_state=*/false);
  };
  for (uint16_t i = 0; i < kServers; ++i) arrive(c.Server(static_cast<uint16_t>(9000 + i)));
  for (uint64_t i = 1; i < kWorkers; ++i) arrive(c.Worker(i));
  EXPECT_EQ(c.state().phase, wire::Phase::kForming);
  c.Advance(1'000'000);
  EXPECT_LT(c.network.count, 2'000u) << "19,900 if everybody is told of everybody";
  auto told = [&] {
    return std::count_if(nodes.begin(), nodes.end(), [&](const FakeNode& node) {
      const auto state = c.Last<wire::StateMessage>(node.conn);
      return state && state->state.version == c.state().version;
    });
  };
  EXPECT_EQ(told(), std::ssize(nodes)) << "after a moment all know who is there";
  arrive(c.Worker(kWorkers));
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
  EXPECT_EQ(told(), std::ssize(nodes)) << "that it is complete is told at once";
}

// The network of the tests has every node on another machine than the scheduler's.
TEST(Membership, ALoopbackAddressFromAnotherMachineIsRefused) {
  FakeCluster c(FakeCluster::Options(1, 1));
  c.Start();
  for (const char* host : {"127.0.0.1", "127.0.1.1", "::1", "localhost"}) {
    const ConnId conn = c.NewConn();
    c.Tell(conn,
           wire::Register{.role = wire::Role::kServer, .uid = 77, .endpoint = {host, 9000}, .threads = 1});
    const auto refusal = c.Last<wire::Refusal>(conn);
    ASSERT_TRUE(refusal.has_value()) << host;
    EXPECT_EQ(refusal->code, Code::kInvalidArgument);
    EXPECT_NE(refusal->text.find("--host"), std::string::npos) << refusal->text;
    EXPECT_TRUE(c.state().servers.empty());
  }
  const ConnId conn = c.NewConn();
  c.Tell(conn, wire::Register{.role = wire::Role::kWorker, .uid = 78, .endpoint = {"127.0.0.1", 0}});
  EXPECT_FALSE(c.Last<wire::Refusal>(conn).has_value()) << "nobody connects to a worker";
}

}  // namespace
}  // namespace cairn::scheduler
