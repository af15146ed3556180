// What is committed, and what an answer says that had to wait for it (docs/consistency.md, rules 41 and
// 44).
#include "server/owners_harness.h"

namespace cairn::server {
namespace {

constexpr const char* kMoved = "is no longer the owner";

// Dense values are sent from the table's memory, which goes on changing while an answer is held.
TEST(Commitment, AHeldAnswerHasTheValuesOfItsTime) {
  OwnersHarness h(2, 1);
  const TableId table = h.AddTable(DenseHarness::Dense(Mode::kAsync));
  h.Carry();
  h[0].Deliver(0, h[0].PushDense(0, table, {{0, 2, 1}}));
  h[0].Deliver(1, h[0].PullDense(1, table, {0}));
  h[0].Deliver(0, h[0].PushDense(0, table, {{0, 5, 2}}));
  EXPECT_EQ(h[0].DenseAnswer(1), "");
  h.Carry();
  EXPECT_EQ(h[0].DenseAnswer(1), "values -2");
  h[0].Deliver(1, h[0].PullDense(1, table, {0}));
  EXPECT_EQ(h[0].DenseAnswer(1), "values -7");
}

TEST(Commitment, ABackupThatIsTakenAwayCommitsWhatTheOthersHave) {
  OwnersHarness h(3, 2);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kAsync));
  h.Carry();
  h.stalled.insert(1);
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  h.Carry();
  EXPECT_EQ(h[2].Stored(table, 0), std::nullopt) << "not committed yet";
  for (wire::SlotOwner& owner : h.state.slots) owner.backups.erase(owner.backups.begin());
  h.Publish();
  EXPECT_EQ(h[0].Answer(0), "applied");
  h[0].shard->OnTick(h.now += 1'000'000);
  h.Carry();
  EXPECT_EQ(h[2].Stored(table, 0), -2.0f) << "nobody said that it is committed";
}

// Another primary's epoch came and went unseen, and in it a backup refused what it was sent. The old
// primary begins again, but has nothing left to send it anew.
TEST(Commitment, ABackupThatLacksWhatIsNotSentAgainIsNotCounted) {
  OwnersHarness h(2, 1);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kAsync));
  h.Carry();
  h.deaf.insert(0);
  for (wire::SlotOwner& owner : h.state.slots) owner.epoch = 3;
  h.Publish();
  const auto push = h[0].Push(0, table, {{0, 2, 1}});
  h[0].Deliver(0, push);
  h.Carry();
  EXPECT_NE(h[0].Answer(0).find(kMoved), std::string::npos);
  h.deaf.clear();
  h.Tell(0);
  h.Carry();
  h[0].Deliver(0, push);
  h.Carry();
  EXPECT_EQ(h[0].Answer(0), "") << "it is on one owner only";
  EXPECT_FALSE(h.News(0, wire::SlotNews::kDiverged).empty());
}

}  // namespace
}  // namespace cairn::server
