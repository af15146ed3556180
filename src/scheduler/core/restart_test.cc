// The log: a scheduler that is killed after any record goes on from it; one whose log fails says
// nothing more (rule 1).
#include "scheduler/core/fake_cluster.h"
#include "scheduler/rules/durable.h"

namespace cairn::scheduler {
namespace {

// A job with everything in it: forming, tables, a join, a death, a drop, barriers, the end.
void RunJob(FakeCluster& c) {
  FakeNode s0 = c.Server(9000, 2), s1 = c.Server(9001), w0 = c.Worker(1), w1 = c.Worker(2);
  if (!c.scheduler->fatal().ok()) return;
  auto servers = [&] {
    c.Beat(s0, true, {{TableId(1), Round(4)}}), c.Beat(s1, true, {{TableId(1), Round(5)}});
  };
  servers();
  c.Tell(w0.conn, wire::CreateTable{1, w0.incarnation, DenseSync("w")});
  servers();
  c.Tell(w0.conn, wire::CreateTable{2, w0.incarnation, DenseSync("v")});
  c.Tell(w1.conn, wire::DropTable{1, w1.incarnation, "v"});
  servers();
  FakeNode w2 = c.Worker(3);
  servers();
  FakeNode again = c.Worker(4, 1);
  servers();
  c.Tell(w0.conn, wire::Leave{w0.incarnation});
  c.Tell(w2.conn, wire::Leave{w2.incarnation});
  c.Tell(ConnId(99), wire::GiveUp{1});
  c.Advance(5'100'000, {&s0, &s1});
}

TEST(Restart, FromEveryRecordBringsBackWhatWasDecided) {
  FakeCluster whole(FakeCluster::Options(2, 2));
  whole.Start();
  RunJob(whole);
  ASSERT_EQ(whole.state().phase, wire::Phase::kEnded);
  const MemoryStore::Records records = whole.memory.records();
  ASSERT_GT(records.size(), 12u);
  uint64_t version = 0;
  for (size_t n = 1; n <= records.size(); ++n) {
    auto before = DecodeRecord(records[n - 1]);
    ASSERT_TRUE(before.ok()) << before.status().ToString();
    EXPECT_EQ(before->state.version.value, ++version) << "each record is one version";
    MemoryStore store(MemoryStore::Records(records.begin(), records.begin() + static_cast<ptrdiff_t>(n)));
    FakeNetwork network;
    BufferPool pool;
    auto options = whole.options;
    auto scheduler = Scheduler::Start(options, store, network, pool, 0, nullptr);
    ASSERT_TRUE(scheduler.ok()) << scheduler.status().ToString();
    auto first = DecodeRecord(store.records()[n]);  // the term comes first
    ASSERT_TRUE(first.ok());
    before->state.term = before->state.term.Next();
    before->state.version = before->state.version.Next();
    EXPECT_EQ(*first, *before) << "after record " << n;
  }
}

// One that is killed in the middle of telling has told a server, which tells the workers (rule 55).
TEST(Restart, ServersAreToldBeforeWorkersAlsoThoseThatCameLater) {
  FakeCluster c(FakeCluster::Options(1, 2));
  c.Start();
  FakeNode s0 = c.Server(9000), w0 = c.Worker(1), w1 = c.Worker(2), s1 = c.Server(9001);
  c.network.told_states.clear();
  c.Tell(w0.conn, wire::CreateTable{1, w0.incarnation, DenseSync("w")});
  EXPECT_EQ(c.network.told_states, (std::vector{s0.conn, s1.conn, w0.conn, w1.conn}));
}

TEST(Restart, WhateverFollowsFromTheLogIsDoneAtTheStart) {
  FakeCluster whole(FakeCluster::Options(2, 2));
  whole.Start();
  RunJob(whole);
  // Killed between the last registration and the record that forms the cluster.
  const MemoryStore::Records records = whole.memory.records();
  for (size_t n = 1; n <= records.size(); ++n) {
    auto record = DecodeRecord(records[n - 1]);
    if (record->state.servers.size() != 2 || record->state.workers.size() != 2) continue;
    ASSERT_EQ(record->state.phase, wire::Phase::kForming);
    MemoryStore store(MemoryStore::Records(records.begin(), records.begin() + static_cast<ptrdiff_t>(n)));
    FakeNetwork network;
    BufferPool pool;
    auto scheduler = Scheduler::Start(whole.options, store, network, pool, 0, nullptr);
    EXPECT_EQ((*scheduler)->state().phase, wire::Phase::kRunning);
    break;
  }
}

TEST(Restart, AfterAFailedAppendNothingIsSaid) {
  for (bool gets_through : {false, true}) {
    for (int appends = 1; appends < 25; ++appends) {
      FakeCluster c(FakeCluster::Options(2, 2));
      c.store.appends_left = appends;
      c.store.record_gets_through = gets_through;
      c.Start();
      RunJob(c);
      if (c.scheduler->fatal().ok()) continue;  // the job has fewer records
      EXPECT_EQ(c.scheduler->fatal().code(), Code::kIo);
      // What was said never exceeds what is in the log.
      const uint64_t logged =
          DecodeRecord(c.memory.records().back())->state.version.value - (gets_through ? 1 : 0);
      for (const auto& [conn, messages] : c.network.sent)
        for (const auto& message : messages) {
          if (const auto* m = std::get_if<wire::StateMessage>(&message)) {
            EXPECT_LE(m->state.version.value, logged);
          }
          if (const auto* m = std::get_if<wire::Registered>(&message)) {
            EXPECT_LT(m->incarnation, DecodeRecord(c.memory.records().back())->state.next_incarnation);
          }
        }
      const size_t said = c.network.count;
      c.Tell(ConnId(500), wire::StatusRequest{1});
      c.Advance(6'000'000);
      EXPECT_EQ(c.network.count, said);
      // The next one goes on.
      c.store.appends_left = -1;
      c.Restart();
      EXPECT_TRUE(c.scheduler->fatal().ok());
    }
  }
}

TEST(Restart, NodesGoOnByHeartbeatAlone) {
  FakeCluster c(FakeCluster::Options(1, 1));
  c.Start();
  FakeNode server = c.Server(9000), worker = c.Worker(1);
  c.Restart();
  EXPECT_EQ(c.state().term, Term(2));
  for (FakeNode* node : {&server, &worker}) {
    node->conn = c.NewConn();
    c.Beat(*node, /*takes_state=*/false);
    EXPECT_EQ(c.Last<wire::HeartbeatReply>(node->conn)->term, Term(2));
    EXPECT_EQ(c.Last<wire::StateMessage>(node->conn)->state, c.state());
  }
  FakeNode repeated = c.Worker(1);
  EXPECT_EQ(repeated.incarnation, worker.incarnation);
}

// It may still wait for an answer of the scheduler before; and there is no other copy.
TEST(Restart, AServerThatNobodyCanReplaceHasTimeToFindTheNewScheduler) {
  FakeCluster c(FakeCluster::Options(1, 1));
  c.Start();
  FakeNode server = c.Server(9000), worker = c.Worker(1);
  c.Restart();
  worker.conn = c.NewConn();
  c.Advance(c.options.lost_after_us - 1'000'000, {&worker});
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
  server.conn = c.NewConn();
  c.Beat(server, /*takes_state=*/false);
  c.Advance(c.options.lost_after_us + 200'000, {&worker});
  EXPECT_EQ(c.state().phase, wire::Phase::kFailed);
}

TEST(Restart, LogOfAnotherJobIsRefused) {
  FakeCluster c(FakeCluster::Options(1, 1));
  c.Start();
  auto start = [&](auto change) {
    SchedulerOptions options = c.options;
    change(options);
    return Scheduler::Start(options, c.store, c.network, c.pool, 0, nullptr).status();
  };
  EXPECT_EQ(start([](auto& o) { o.expected_workers = 2; }).code(), Code::kInvalidArgument);
  EXPECT_EQ(start([](auto& o) { o.cluster_id = "x"; }).code(), Code::kInvalidArgument);
  EXPECT_EQ(start([](auto& o) { o.slot_count = 64; }).code(), Code::kInvalidArgument);
  EXPECT_TRUE(start([](auto& o) { o.cluster_seed = 12345; }).ok()) << "the log's cluster id counts";
}

TEST(Restart, LogIsCompacted) {
  FakeCluster c(FakeCluster::Options(1, 1));
  c.options.slot_count = 4096;
  c.Start();
  FakeNode server = c.Server(9000), worker = c.Worker(1);
  size_t most = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    c.Tell(worker.conn, wire::CreateTable{2 * i, worker.incarnation, DenseSync("t")});
    c.Tell(worker.conn, wire::DropTable{2 * i + 1, worker.incarnation, "t"});
    c.Beat(server);
    size_t bytes = 0;
    for (const auto& record : c.memory.records()) bytes += record.size();
    most = std::max(most, bytes);
  }
  EXPECT_LT(most, size_t{2} << 20);
  const DurableState before = c.durable();
  c.Restart();
  EXPECT_EQ(c.durable().operations, before.operations);
  EXPECT_EQ(c.durable().state.next_table, before.state.next_table);
}

TEST(Record, OneOfTheFormatBeforeIsRead) {
  FakeCluster c(FakeCluster::Options(2, 2));
  c.Start();
  std::vector<std::byte> record = EncodeRecord(c.durable());
  record[3] = std::byte{2};  // its version
  record.pop_back();         // it does not say whether everybody knows of the end
  const auto read = DecodeRecord(record);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(*read, c.durable());
}

TEST(Record, DamagedBytesAreAnErrorAndNeverMore) {
  FakeCluster c(FakeCluster::Options(2, 2));
  c.Start();
  RunJob(c);
  std::vector<std::byte> record = c.memory.records()[c.memory.records().size() / 2];
  ASSERT_TRUE(DecodeRecord(record).ok());
  for (size_t n = 0; n < record.size(); ++n) EXPECT_FALSE(DecodeRecord(std::span(record).first(n)).ok());
  for (size_t i = 0; i < record.size(); ++i) {
    auto damaged = record;
    damaged[i] ^= std::byte{0xFF};
    (void)DecodeRecord(damaged);
  }
}

}  // namespace
}  // namespace cairn::scheduler
