// What a scheduler is started with: options that can't be, a log that is too large, and what may change
// from one start to the next (rule 1).
#include "scheduler/core/fake_cluster.h"
#include "scheduler/rules/durable.h"

namespace cairn::scheduler {
namespace {

Status StartedWith(const SchedulerOptions& options) {
  MemoryStore store;
  FakeNetwork network;
  BufferPool pool;
  return Scheduler::Start(options, store, network, pool, 0, nullptr).status();
}

TEST(StartOptions, OutOfRangeAreRefused) {
  const auto refused = [](auto change) {
    SchedulerOptions options = FakeCluster::Options(3, 2);
    change(options);
    const Status status = StartedWith(options);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.message();
    return status.message();
  };
  EXPECT_TRUE(StartedWith(FakeCluster::Options(3, 2)).ok());
  EXPECT_EQ(refused([](auto& o) { o.expected_servers = 0; }), "a job has 1 to 65535 servers, not 0");
  EXPECT_EQ(refused([](auto& o) { o.expected_servers = 65536; }), "a job has 1 to 65535 servers, not 65536");
  EXPECT_EQ(refused([](auto& o) { o.expected_workers = 0; }), "a job starts with 1 to 65536 workers, not 0");
  refused([](auto& o) { o.expected_workers = 65537; });
  refused([](auto& o) { o.slot_count = 0; });
  refused([](auto& o) { o.slot_count = 65537; });
  EXPECT_EQ(refused([](auto& o) { o.replicas = wire::kMaxBackups + 1; }),
            "a partition has 1 to 7 replicas (0: chosen), not 8");
  refused([](auto& o) { o.min_in_sync = 0; });
  refused([](auto& o) { o.min_in_sync = 2; });
  refused([](auto& o) { o.replicas = 0, o.min_in_sync = 3; });
  refused([](auto& o) { o.cluster_id = "a\nb"; });
  refused([](auto& o) { o.cluster_id = std::string(256, 'a'); });
  refused([](auto& o) { o.heartbeat_us = 0; });
  refused([](auto& o) { o.dead_after_us = 0; });
  refused([](auto& o) { o.rejoin_grace_us = -1; });
  refused([](auto& o) { o.deadlock_after_us = -1; });
  SchedulerOptions most = FakeCluster::Options(3, 2);
  most.replicas = wire::kMaxBackups;
  most.min_in_sync = 3;
  EXPECT_TRUE(StartedWith(most).ok());
}

TEST(StartAgain, TheNumberOfServersIsTheJobs) {
  FakeCluster c(FakeCluster::Options(1, 1));
  c.Start();
  SchedulerOptions options = c.options;
  options.expected_servers = 2;
  EXPECT_EQ(Scheduler::Start(options, c.store, c.network, c.pool, 0, nullptr).status().code(),
            Code::kInvalidArgument);
}

TEST(StartAgain, ReplicasAndMinInSyncMayChange) {
  FakeCluster c(FakeCluster::Options(3, 1));
  c.Start();
  for (uint16_t i = 0; i < 3; ++i) (void)c.Server(static_cast<uint16_t>(9000 + i));
  (void)c.Worker(1);
  ASSERT_EQ(c.state().replicas, 1u);
  c.options.replicas = 3;
  c.options.min_in_sync = 2;
  c.Restart();
  EXPECT_EQ(c.state().replicas, 3u);
  EXPECT_EQ(c.state().min_in_sync, 2u);
  EXPECT_TRUE(c.Logged("each partition had 1 owner in the log, and is to have 3 from now on (--replicas)"));
  c.Restart();
  EXPECT_EQ(c.CountLogged("from now on (--replicas)"), 1u);
}

TEST(StartAgain, ManyTimesDoesNotMakeTheLogGrow) {
  FakeCluster c(FakeCluster::Options(1, 1));
  c.options.bounds.log_bytes = 4096;
  c.Start();
  (void)c.Server(9000), (void)c.Worker(1);
  size_t largest = 0;
  for (int i = 0; i < 100; ++i) {
    c.Restart();
    size_t bytes = 0;
    for (const auto& record : c.memory.records()) bytes += record.size();
    largest = std::max(largest, bytes);
  }
  const size_t record = c.memory.records().back().size();
  EXPECT_LE(largest, std::max<size_t>(4096, 8 * record));
  EXPECT_GT(largest, 4 * record) << "and is not written anew each time";
}

TEST(StartAgain, ALogThatCanNotBeReplacedIsAnErrorAndNothingIsSaid) {
  FakeCluster c(FakeCluster::Options(1, 1));
  c.options.bounds.log_bytes = 1;
  c.Start();
  FakeNode server = c.Server(9000), worker = c.Worker(1);
  c.store.replace_fails = true;
  uint64_t request = 0;
  while (c.scheduler->fatal().ok() && request < 100) {
    c.Tell(worker.conn, wire::CreateTable{++request, worker.incarnation, DenseSync(std::to_string(request))});
    c.Beat(server);
  }
  EXPECT_EQ(c.scheduler->fatal().code(), Code::kIo);
  EXPECT_NE(c.scheduler->fatal().message().find("the disk is full"), std::string::npos);
  const size_t said = c.network.count;
  c.Advance(2'000'000, {&server, &worker});
  EXPECT_EQ(c.network.count, said);
}

TEST(StartRecord, ThatDoesNotFitTogetherIsRefused) {
  FakeCluster c(FakeCluster::Options(1, 1));
  c.Start();
  (void)c.Server(9000), (void)c.Worker(1);
  const auto refused = [&](auto change) {
    DurableState d = c.durable();
    change(d);
    const auto decoded = DecodeRecord(EncodeRecord(d));
    EXPECT_FALSE(decoded.ok());
    return decoded.ok() ? std::string() : decoded.status().message();
  };
  ASSERT_TRUE(DecodeRecord(EncodeRecord(c.durable())).ok());
  EXPECT_NE(refused([](auto& d) { d.state.expected_servers = 0; }).find("it expects no nodes"),
            std::string::npos);
  EXPECT_NE(refused([](auto& d) { d.state.expected_workers = 0; }).find("it expects no nodes"),
            std::string::npos);
  EXPECT_NE(refused([](auto& d) { d.slot_count = 8; }).find("another number of slots"), std::string::npos);
  EXPECT_NE(refused([](auto& d) { d.state.next_incarnation = Incarnation(2); }).find("out of order"),
            std::string::npos);
  EXPECT_NE(refused([](auto& d) {
              std::swap(d.nodes[0].incarnation, d.nodes[1].incarnation);
            }).find("out of order"),
            std::string::npos);
  EXPECT_NE(refused([](auto& d) { d.nodes[0].fate = static_cast<NodeFate>(9); }).find("unknown fate"),
            std::string::npos);
  EXPECT_NE(refused([](auto& d) { d.nodes[0].role = wire::Role::kTool; }).find("unknown role"),
            std::string::npos);
  EXPECT_NE(refused([](auto& d) { d.nodes.erase(d.nodes.begin()); }).find("a server never registered"),
            std::string::npos);
  EXPECT_NE(refused([](auto& d) { d.nodes.pop_back(); }).find("a worker never registered"),
            std::string::npos);
}

}  // namespace
}  // namespace cairn::scheduler
