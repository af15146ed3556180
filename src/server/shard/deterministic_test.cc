// Deterministic tables: sums are taken in the order of ranks, whatever the order of arrival.
#include <algorithm>

#include "server/shard/shard_harness.h"

namespace cairn::server {
namespace {

struct Ordered {
  explicit Ordered(uint32_t workers, uint64_t budget = uint64_t{1} << 30) : h(workers, Options(budget)) {
    TableSpec spec = ShardHarness::Sparse(Mode::kSync, OptimizerKind::kSum);
    spec.deterministic = true;
    table = h.AddTable(spec);
    h.SkipAnswers();
  }
  static ShardOptions Options(uint64_t budget) {
    ShardOptions options;
    options.early_contribution_budget = budget;
    return options;
  }
  ShardHarness h;
  TableId table;
};

// Float sums of these depend on their order.
constexpr float kValues[4] = {1e8f, 1.0f, -1e8f, 1.0f};
constexpr float kInRankOrder = ((1e8f + 1.0f) + -1e8f) + 1.0f;

TEST(DeterministicTest, EveryOrderOfArrivalGivesTheSameBits) {
  std::vector<uint32_t> order = {0, 1, 2, 3};
  do {
    Ordered o(4);
    for (uint32_t rank : order) o.h.Deliver(rank, o.h.Give(rank, o.table, 0, 1, kValues[rank]));
    EXPECT_EQ(o.h.Stored(o.table, 1), kInRankOrder);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(DeterministicTest, AMarkWithoutAGradientLetsTheNextRankIn) {
  Ordered o(3, 0);  // nothing may be kept
  auto& h = o.h;
  h.Deliver(1, h.Give(1, o.table, 0, 1, 1.0f));
  EXPECT_EQ(h.Answer(1),
            "error resource_exhausted: table \"w\" is deterministic and rank 1 is early: 0 bytes wait for "
            "their turn "
            "already");
  EXPECT_TRUE(h.seen.staged.empty());
  h.Deliver(0, h.Done(0, o.table, 0));
  h.Deliver(1, h.Give(1, o.table, 0, 1, 1.0f));
  EXPECT_EQ(h.Answer(1), "");
  h.Deliver(2, h.Give(2, o.table, 0, 1, 2.0f));
  for (uint32_t rank : {0u, 1u, 2u}) EXPECT_EQ(h.Answer(rank), "closed");
  EXPECT_EQ(h.Stored(o.table, 1), 3.0f);
}

TEST(DeterministicTest, KeptFramesAreGivenBackAndSentAgainOnesGetIn) {
  Ordered o(3, 600);  // one small frame
  auto& h = o.h;
  h.Deliver(1, h.Give(1, o.table, 0, 1, 1.0f));
  EXPECT_EQ(h.Answer(1), "") << "kept";
  h.Deliver(2, h.Give(2, o.table, 0, 1, 1.0f));
  EXPECT_TRUE(h.Answer(2).starts_with("error resource_exhausted"));
  h.Deliver(0, h.Give(0, o.table, 0, 1, 1.0f));
  h.Deliver(2, h.Give(2, o.table, 0, 1, 1.0f));
  for (uint32_t rank : {0u, 1u, 2u}) EXPECT_EQ(h.Answer(rank), "closed");
  EXPECT_EQ(h.Stored(o.table, 1), 3.0f);
  h.Deliver(1, h.Give(1, o.table, 1, 1, 1.0f));
  EXPECT_EQ(h.Answer(1), "") << "the budget is free again";
}

TEST(DeterministicTest, ADeathLetsThoseWhoWaitedForItIn) {
  Ordered o(3);
  auto& h = o.h;
  h.Deliver(2, h.Give(2, o.table, 0, 1, kValues[2]));
  h.Deliver(1, h.Give(1, o.table, 0, 1, kValues[1]));
  h.Kill(1);  // its complete contribution stays, in its place
  h.Kill(0);
  EXPECT_EQ(h.Answer(2), "closed");
  EXPECT_EQ(h.Stored(o.table, 1), kValues[1] + kValues[2]);
}

// While a view is pending, whoever joins with it may have a lower rank than those who are there.
TEST(DeterministicTest, AHeldRoundIsNotSummedBeforeItsWorkersAreKnown) {
  Ordered o(4);
  auto& h = o.h;
  h.Kill(1);
  h.AddWorker(1, ViewNumber{0});  // rank 1 again: it waits for the next view
  h.Deliver(0, h.Done(0, o.table, 0));
  h.state.pending_view = h.state.view.Next();
  h.Publish();
  for (uint32_t rank : {2u, 3u}) h.Deliver(rank, h.Done(rank, o.table, 0));  // one that has begun may close
  for (uint32_t rank : {0u, 2u, 3u}) h.Deliver(rank, h.Give(rank, o.table, 1, 1, kValues[rank]));
  h.state.view = h.state.pending_view;
  h.state.pending_view = ViewNumber{0};
  h.state.views.push_back({h.state.view, {{o.table, Round{1}}}});
  for (wire::WorkerInfo& worker : h.state.workers)
    if (worker.join_view == ViewNumber{0}) worker.join_view = h.state.view;
  h.Publish();
  h.Connect(1);
  h.Deliver(1, h.Give(1, o.table, 1, 1, kValues[1]));
  EXPECT_EQ(h.Stored(o.table, 1), kInRankOrder);
}

TEST(DeterministicTest, PartsOfOneFrameFoldAtDifferentTimes) {
  Ordered o(2);
  auto& h = o.h;
  h.Deliver(1, h.Contribute(1, o.table, 0, {{0, 1.0f}, {1, 2.0f}, {2, 4.0f}},
                            {.done = std::vector<uint32_t>{0, 1, 2}}));
  h.Deliver(0, h.Contribute(0, o.table, 0, {{1, 8.0f}}, {}));
  h.Deliver(0, h.Contribute(0, o.table, 0, {{2, 16.0f}}, {.done = std::vector<uint32_t>{1, 2}}));
  EXPECT_EQ(h.Stored(o.table, 0), 1.0f);
  EXPECT_EQ(h.Stored(o.table, 1), 10.0f);
  EXPECT_EQ(h.Stored(o.table, 2), 20.0f);
}

}  // namespace
}  // namespace cairn::server
