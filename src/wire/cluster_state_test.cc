// Where things lie, and who takes part from which round.
#include "wire/cluster_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/random.h"
#include "wire/wire_samples.h"

namespace cairn::wire {
namespace {

TEST(ClusterState, Lookups) {
  const ClusterState state = SampleState();
  EXPECT_EQ(state.FindTable(TableId{4})->spec.name, "user_emb");
  EXPECT_EQ(state.FindTable("dense")->id, TableId{1});
  EXPECT_EQ(state.FindTable(TableId{2}), nullptr);
  EXPECT_EQ(state.FindTable("other"), nullptr);
  EXPECT_EQ(state.FindWorker(Incarnation{9})->rank, Rank{2});
  EXPECT_EQ(state.FindWorker(Incarnation{10}), nullptr);
  EXPECT_EQ(state.FindView(ViewNumber{2})->starts.size(), 2u);
  EXPECT_EQ(state.FindView(ViewNumber{3}), nullptr);
  EXPECT_EQ(state.FindServer(4)->incarnation, Incarnation{10});
  EXPECT_EQ(state.FindServer(0)->incarnation, Incarnation{1});
  EXPECT_EQ(state.FindServer(3), nullptr);
  EXPECT_EQ(state.FindServer(5), nullptr);
  EXPECT_EQ(state.slots[0].FindBackup(1)->added, StateVersion{9});
  EXPECT_EQ(state.slots[0].FindBackup(0), nullptr) << "the primary is no backup";
  EXPECT_EQ(state.slots[1].FindBackup(4), nullptr);
}

TEST(ClusterState, EndpointsAsText) {
  EXPECT_EQ(ToString(Endpoint{"127.0.0.1", 80}), "127.0.0.1:80");
  EXPECT_EQ(ToString(Endpoint{"::1", 80}), "[::1]:80");
}

// docs/internals/consistency.md, rule 6.
TEST(FirstRound, ZeroForWorkersOlderThanTheTable) {
  const ClusterState state = SampleState();
  WorkerInfo worker = state.workers[1];
  TableInfo table = *state.FindTable(TableId{1});
  worker.join_view = ViewNumber{2};
  table.created_view = ViewNumber{2};
  EXPECT_EQ(FirstRound(state, worker, table), Round{0});
  table.created_view = ViewNumber{3};
  EXPECT_EQ(FirstRound(state, worker, table), Round{0});
}
TEST(FirstRound, TheViewsStartForWorkersYoungerThanTheTable) {
  const ClusterState state = SampleState();
  const WorkerInfo& worker = state.workers[1];  // joined with view 2
  TableInfo table = *state.FindTable(TableId{1});
  table.created_view = ViewNumber{1};
  EXPECT_EQ(FirstRound(state, worker, table), Round{17});
  table.id = TableId{4};
  EXPECT_EQ(FirstRound(state, worker, table), Round{90});
}
TEST(FirstRound, ZeroWhereTheViewDoesNotListTheTable) {
  ClusterState state = SampleState();
  const WorkerInfo& worker = state.workers[1];
  TableInfo table = *state.FindTable(TableId{1});
  table.id = TableId{5};  // an async table
  EXPECT_EQ(FirstRound(state, worker, table), Round{0});
  state.views.clear();
  table.id = TableId{1};
  EXPECT_EQ(FirstRound(state, worker, table), Round{0});
}

// The same in every release: rows of a checkpoint or a running cluster depend on it.
TEST(SlotOfKey, Frozen) {
  EXPECT_EQ(SlotOfKey(0, 256), SlotId{0});
  EXPECT_EQ(SlotOfKey(1, 256), SlotId{86});
  EXPECT_EQ(SlotOfKey(2, 256), SlotId{219});
  EXPECT_EQ(SlotOfKey(1000000, 256), SlotId{98});
  EXPECT_EQ(SlotOfKey(0xFFFFFFFFFFFFFFFF, 256), SlotId{180});
  EXPECT_EQ(SlotOfKey(1, 65536), SlotId{22162});
  EXPECT_EQ(SlotOfKey(12345, 3), SlotId{2});
}
TEST(SlotOfKey, SpreadsConsecutiveAndStridedKeysEvenly) {
  for (uint32_t slots : {1u, 3u, 256u, 1000u}) {
    for (uint64_t step : {uint64_t{1}, uint64_t{4096}, uint64_t{1} << 40}) {
      std::vector<uint32_t> counts(slots);
      const uint64_t keys = uint64_t{slots} * 1000;
      for (uint64_t i = 0; i < keys; ++i) {
        const SlotId slot = SlotOfKey(i * step, slots);
        ASSERT_LT(slot.value, slots);
        ++counts[slot.value];
      }
      // 1000 expected a slot, standard deviation 32.
      EXPECT_GT(*std::min_element(counts.begin(), counts.end()), 820u) << slots << " step " << step;
      EXPECT_LT(*std::max_element(counts.begin(), counts.end()), 1180u) << slots << " step " << step;
    }
  }
}

TEST(DenseLayout, Frozen) {
  const DenseLayout layout = DenseLayout::Of(TableId{1}, 61706, 256);
  EXPECT_EQ(layout.block, 1024u);
  EXPECT_EQ(layout.start, 190u);
  EXPECT_EQ(layout.stride, 97u);
  const DenseLayout other = DenseLayout::Of(TableId{3}, uint64_t{1} << 30, 1000);
  EXPECT_EQ(other.block, 16384u);
  EXPECT_EQ(other.start, 700u);
  EXPECT_EQ(other.stride, 619u);
}

TEST(DenseLayout, BlockGrowsWithTheTableWithinItsBounds) {
  EXPECT_EQ(DenseLayout::Of(TableId{1}, 1, 256).block, 1024u);
  EXPECT_EQ(DenseLayout::Of(TableId{1}, 64 * 1024, 256).block, 1024u);
  EXPECT_EQ(DenseLayout::Of(TableId{1}, 64 * 2048, 256).block, 2048u);
  EXPECT_EQ(DenseLayout::Of(TableId{1}, 64 * 4095, 256).block, 2048u);
  EXPECT_EQ(DenseLayout::Of(TableId{1}, uint64_t{1} << 40, 256).block, 16384u);
}

TEST(DenseLayout, StrideIsOddCoprimeAndVisitsEverySlotFirst) {
  for (uint32_t slots = 1; slots <= 600; ++slots) {
    for (uint32_t table = 1; table <= 8; ++table) {
      const DenseLayout layout = DenseLayout::Of(TableId{table}, uint64_t{slots} * 1024, slots);
      EXPECT_EQ(layout.stride % 2, 1u);
      EXPECT_EQ(std::gcd(layout.stride, slots), 1u);
      EXPECT_LT(layout.start, slots);
      std::vector<bool> seen(slots);
      for (uint64_t b = 0; b < slots; ++b) {
        const uint32_t slot = layout.SlotOfBlock(b);
        EXPECT_FALSE(seen[slot]) << slots << " slots, block " << b;
        seen[slot] = true;
      }
    }
  }
}

TEST(RunsBySlot, EveryElementLiesInExactlyOneRun) {
  for (uint64_t size : {0ull, 1ull, 1023ull, 1024ull, 1025ull, 61706ull, 300000ull, 5000001ull}) {
    for (uint32_t slots : {1u, 2u, 7u, 64u, 256u}) {
      const auto runs = RunsBySlot(DenseLayout::Of(TableId{5}, size, slots));
      ASSERT_EQ(runs.size(), slots);
      std::vector<DenseRun> all;
      for (const auto& slot : runs) {
        for (size_t i = 1; i < slot.size(); ++i) EXPECT_LT(slot[i - 1].begin, slot[i].begin);
        all.insert(all.end(), slot.begin(), slot.end());
      }
      std::sort(all.begin(), all.end(),
                [](const DenseRun& a, const DenseRun& b) { return a.begin < b.begin; });
      uint64_t next = 0;
      for (const DenseRun& run : all) {
        ASSERT_EQ(run.begin, next);
        ASSERT_GT(run.count, 0u);
        next += run.count;
      }
      EXPECT_EQ(next, size) << slots;
    }
  }
}

TEST(RunsBySlot, SlotsDifferByAtMostOneBlock) {
  for (uint64_t size : {61706ull, 1000000ull, 11173962ull}) {
    const DenseLayout layout = DenseLayout::Of(TableId{2}, size, 256);
    size_t least = SIZE_MAX, most = 0;
    for (const auto& slot : RunsBySlot(layout)) {
      least = std::min(least, slot.size());
      most = std::max(most, slot.size());
    }
    EXPECT_LE(most - least, 1u) << size;
  }
}

// Slots lie in contiguous runs on the shard threads (rule 3): few blocks must spread over them too.
TEST(RunsBySlot, ThreadsAreBalancedForSmallModels) {
  for (uint64_t size : {61706ull, 235146ull, 1000000ull}) {
    for (uint32_t threads : {2u, 3u, 4u, 8u}) {
      for (uint32_t table = 1; table <= 20; ++table) {
        const auto runs = RunsBySlot(DenseLayout::Of(TableId{table}, size, 256));
        std::vector<uint64_t> load(threads);
        for (uint32_t s = 0; s < 256; ++s) {
          for (const DenseRun& run : runs[s]) load[s * threads / 256] += run.count;
        }
        const double mean = static_cast<double>(size) / threads;
        const double fullest = static_cast<double>(*std::max_element(load.begin(), load.end())) / mean;
        EXPECT_LT(fullest, 1.25) << size << " elements, " << threads << " threads, table " << table;
      }
    }
  }
}

}  // namespace
}  // namespace cairn::wire
