// What a shard says of its own work: loads of slots, hot rows, rounds that stand still, statistics.
#include "server/shard/owners_harness.h"
#include "server/slots/row_weights.h"

namespace cairn::server {
namespace {

TEST(Work, OfAPrimaryAloneBySlotPushesApartFromPulls) {
  OwnersHarness h(2, 1);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kAsync));
  h[0].Deliver(0, h[0].Push(0, table, {{2, 1, 1}}));
  h[0].Deliver(0, h[0].Push(0, table, {{2, 1, 2}}));
  h[0].Deliver(0, h[0].Pull(0, table, {2}));
  h.Carry();
  const auto loads = h[0].shard->loads();
  ASSERT_EQ(loads.size(), OwnersHarness::kSlots);
  // A part 256, a row 64, and its four bytes; a row weighs its values and what the index has of it.
  EXPECT_EQ(loads[2], (wire::SlotLoad{2, 4 + 18, 3, 2 * (256 + 64 + 4), 256 + 64 + 4}));
  EXPECT_EQ(loads[1], (wire::SlotLoad{1, 0, 0, 0, 0}));
  EXPECT_TRUE(h[1].shard->loads().empty()) << "a backup";
}

TEST(Work, HotRowsAreThoseOfPushesAndPullsAndAgeBySeconds) {
  ShardHarness h(1);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kAsync));
  h.shard->OnTick(h.now = 1'000'000);
  for (uint64_t number = 1; number <= 20; ++number) h.Deliver(0, h.Push(0, table, {{1, 1, number}}));
  EXPECT_EQ(h.shard->hot_rows().sampled, (std::vector<wire::SampledTable>{{table, 20}}));
  for (int i = 0; i < 12; ++i) h.Deliver(0, h.Pull(0, table, {1}));
  const auto expect = [&](uint64_t count) {
    const Shard::HotReport report = h.shard->hot_rows();
    EXPECT_EQ(report.sampled, (std::vector<wire::SampledTable>{{table, count}}));
    EXPECT_EQ(report.rows, (std::vector<wire::HotRow>{{table, ShardHarness::KeyIn(1), count}}));
  };
  expect(32);
  for (int i = 0; i < 9; ++i) h.shard->OnTick(h.now += 100'000);
  expect(32);
  h.shard->OnTick(h.now += 100'000);
  expect(30);
}

TEST(Work, EveryTableThatIsWaitedForIsReported) {
  ShardHarness h(2);
  const TableId first = h.AddTable(ShardHarness::Sparse(Mode::kSync));
  const TableId second = h.AddTable(ShardHarness::Sparse(Mode::kSync));
  for (const TableId table : {first, second}) h.Deliver(0, h.Done(0, table, 0));
  h.shard->OnTick(h.now += 2'000'000);
  EXPECT_EQ(h.shard->stalled().size(), 2u);
}

// A table made one by one is one new state after the other, each with its report: what is looked at for all
// of them grows with the tables, not with their square. (Every slot counts, so these are many pairs.)
TEST(Work, ANewTableCostsNoLookAtThoseThatAreThere) {
  ShardHarness h(1);
  h.shard->OnTick(h.now = 1'000'000);
  const auto table = [&] {
    TableSpec spec;
    spec.size = 4;
    spec.name = "t" + std::to_string(h.state.next_table.value);
    return spec;
  };
  const auto report = [&] {
    EXPECT_EQ(h.shard->loads().size(), ShardHarness::kOwned);
    return h.shard->stats();
  };
  for (size_t i = 0; i < RowWeights::kFewPairs / ShardHarness::kOwned; ++i) {
    h.state.tables.push_back({h.state.next_table, table(), h.state.view});
    h.state.next_table = h.state.next_table.Next();
  }
  h.AddTable(table());
  report();  // this one looks at everything
  const uint64_t before = h.shard->looks_at_rows();
  for (int i = 0; i < 50; ++i) {
    h.AddTable(table());
    report();
  }
  EXPECT_EQ(h.shard->looks_at_rows() - before, 2 * 50 * ShardHarness::kOwned)
      << "each is made and weighed once in every slot";
  const wire::NodeStats stats = report();
  const auto loads = h.shard->loads();
  h.shard->OnTick(h.now += 1'000'000);
  EXPECT_EQ(report().memory_bytes, stats.memory_bytes) << "those that were made since were in the report";
  EXPECT_EQ(report().dense_bytes, stats.dense_bytes);
  EXPECT_EQ(report().rows, stats.rows);
  EXPECT_EQ(h.shard->loads(), loads);
  EXPECT_GT(h.shard->looks_at_rows() - before, RowWeights::kFewPairs) << "a second later: counted again";
}

TEST(Work, StatisticsCountRequestsMemoryAndWhatGoesToBackups) {
  OwnersHarness h(2, 1);
  const TableId rows = h.AddTable(ShardHarness::Sparse(Mode::kAsync));
  h.Carry();
  EXPECT_EQ(h[0].shard->stats().dense_bytes, 0u);
  EXPECT_GT(h[0].shard->stats().memory_bytes, 0u);
  h.stalled = {1};
  h[0].Deliver(0, h[0].Push(0, rows, {{0, 1, 1}, {1, 1, 1}}));
  h[0].Deliver(0, h[0].Pull(0, rows, {0}));
  const wire::NodeStats before = h[0].shard->stats();
  EXPECT_EQ(before.pushes, 1u);
  EXPECT_EQ(before.pulls, 1u);
  EXPECT_EQ(before.rows, 2u);
  EXPECT_GT(before.unconfirmed_bytes, 0u);
  h.stalled.clear();
  h.Carry();
  EXPECT_EQ(h[0].shard->stats().unconfirmed_bytes, 0u);
  EXPECT_EQ(h[0].shard->stats().replicated_bytes, before.replicated_bytes);
  (void)h.AddTable(DenseHarness::Dense(Mode::kAsync));
  const wire::NodeStats after = h[0].shard->stats();
  EXPECT_EQ(after.dense_bytes, after.memory_bytes - before.memory_bytes) << "of all memory";
}

}  // namespace
}  // namespace cairn::server
