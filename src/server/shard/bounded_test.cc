// Bounded tables: clocks are told, and pulls wait for them (docs/internals/consistency.md, rules 56 to 58).
#include <gtest/gtest.h>

#include "server/shard/shard_harness.h"

namespace cairn::server {
namespace {

class BoundedTest : public testing::Test {
 protected:
  TableId Table(uint32_t staleness) {
    TableSpec spec = ShardHarness::Sparse(Mode::kAsync, OptimizerKind::kSum);
    spec.staleness = staleness;
    const TableId id = h.AddTable(spec);
    h.SkipAnswers();
    return id;
  }
  wire::FramePtr Clock(uint32_t rank, TableId table, uint64_t clock, bool last = false) {
    wire::FramePtr frame = wire::EncodeClock(table, h.state.version, last, h.pool);
    frame->header().round = clock;
    frame->header().incarnation = h.incarnations[rank].value;
    frame->header().request_id = ++requests;
    wire::Seal(*frame);
    return frame;
  }
  // Tells it, and what came back: where another worker would begin.
  uint64_t Tell(uint32_t rank, TableId table, uint64_t clock, bool last = false) {
    h.Deliver(rank, Clock(rank, table, clock, last));
    const auto answer = h.Next(rank);
    EXPECT_TRUE(answer && answer->header.type == wire::FrameType::kClockReply);
    return answer ? answer->header.round : 0;
  }

  ShardHarness h{3};
  uint64_t requests = 1000;
};

TEST_F(BoundedTest, APullWaitsUntilNobodyIsTooFarBehind) {
  const TableId table = Table(1);
  h.Deliver(0, h.Pull(0, table, {1}, 1));
  EXPECT_EQ(h.Answer(0), "values 0") << "everybody is at 0, one behind";
  h.Deliver(0, h.Pull(0, table, {1}, 2));
  EXPECT_EQ(h.Answer(0), "");
  Tell(1, table, 1);
  Tell(0, table, 2);
  EXPECT_EQ(h.Answer(0), "");
  h.Deliver(2, h.Push(2, table, {{1, 4.0f, 1}}));
  EXPECT_EQ(h.Answer(2), "applied");
  Tell(2, table, 1);
  EXPECT_EQ(h.Answer(0), "values 4");
}

TEST_F(BoundedTest, TheAnswerSaysTheSmallestClock) {
  const TableId table = Table(3);
  Tell(0, table, 5);
  Tell(1, table, 4);
  Tell(2, table, 7);
  h.Deliver(0, h.Pull(0, table, {1}, 6));
  const auto answer = h.Next(0);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.type, wire::FrameType::kPullReply);
  EXPECT_EQ(answer->header.round, 4u);
}

TEST_F(BoundedTest, WithoutABoundInItAPullWaitsForNobody) {
  const TableId table = Table(0);
  h.Deliver(0, h.Pull(0, table, {1}));
  EXPECT_EQ(h.Answer(0), "values 0");
}

TEST_F(BoundedTest, ADeadWorkerIsWaitedForNoLonger) {
  const TableId table = Table(0);
  Tell(0, table, 3);
  Tell(1, table, 3);
  h.Deliver(0, h.Pull(0, table, {1}, 3));
  EXPECT_EQ(h.Answer(0), "");
  h.Kill(2);
  EXPECT_EQ(h.Answer(0), "values 0");
}

TEST_F(BoundedTest, OneThatHasNoMoreStepsIsNotWaitedFor) {
  const TableId table = Table(0);
  Tell(0, table, 9);
  Tell(1, table, 9);
  h.Deliver(0, h.Pull(0, table, {1}, 9));
  Tell(2, table, 2, true);
  EXPECT_EQ(h.Answer(0), "values 0");
}

TEST_F(BoundedTest, ANewWorkerIsToldWhereTheOthersAreAndCountsFromItsView) {
  const TableId table = Table(2);
  for (uint32_t rank : {0u, 1u, 2u}) Tell(rank, table, 20 + rank);
  h.state.view = ViewNumber{2};
  h.state.views.push_back({ViewNumber{2}, {}});
  h.AddWorker(3, ViewNumber{2});
  h.Publish();
  h.Connect(3);
  h.SkipAnswers();
  h.Deliver(0, h.Pull(0, table, {1}, 20));
  EXPECT_EQ(h.Answer(0), "") << "it may be anywhere";
  EXPECT_EQ(Tell(3, table, 0), 20u);
  EXPECT_EQ(h.Answer(0), "") << "it has only asked";
  Tell(3, table, 20);
  EXPECT_EQ(h.Answer(0), "values 0");
}

TEST_F(BoundedTest, OfOneThatIsInNoViewNothingIsTaken) {
  const TableId table = Table(0);
  h.AddWorker(3, ViewNumber{0});
  h.Publish();
  h.Connect(3);
  h.SkipAnswers();
  h.Deliver(3, Clock(3, table, 4));
  EXPECT_TRUE(h.Answer(3).starts_with("error unavailable"));
  h.Deliver(3, h.Pull(3, table, {1}, 4));
  EXPECT_TRUE(h.Answer(3).starts_with("error unavailable"));
}

TEST_F(BoundedTest, AClockOfAnotherKindOfTableIsRefused) {
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kAsync));
  h.SkipAnswers();
  h.Deliver(0, Clock(0, table, 4));
  EXPECT_TRUE(h.Answer(0).starts_with("error invalid_argument"));
}

TEST_F(BoundedTest, TheAnswerGoesToTheNewestConnection) {
  const TableId table = Table(0);
  const wire::FramePtr pull = h.Pull(0, table, {1}, 1);
  h.Deliver(0, pull);
  const ConnId old = h.conns[0];
  h.Connect(0);
  h.Deliver(0, pull);
  h.SkipAnswers();
  for (uint32_t rank : {0u, 1u, 2u}) h.Deliver(rank, Clock(rank, table, 1));
  EXPECT_EQ(ShardHarness::Describe(h.NextOn(old)), "");
  h.Next(0);  // the clock's
  EXPECT_EQ(h.Answer(0), "values 0");
}

TEST_F(BoundedTest, WhoWaitsHearsForWhom) {
  const TableId table = Table(0);
  Tell(0, table, 3);
  Tell(2, table, 1);
  h.Deliver(0, h.Pull(0, table, {1}, 2));
  h.now += 3'500'000;
  h.shard->OnTick(h.now);
  const auto told = h.Next(0);
  ASSERT_TRUE(told);
  const auto message = wire::DecodeControl(told->header, told->body());
  ASSERT_TRUE(message.ok());
  const auto* waiting = std::get_if<wire::StillWaiting>(&*message);
  ASSERT_NE(waiting, nullptr);
  EXPECT_EQ(waiting->missing_ranks, (std::vector<uint32_t>{1, 2}));
  ASSERT_EQ(h.shard->stalled().size(), 1u);
}

}  // namespace
}  // namespace cairn::server
