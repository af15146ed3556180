// What is committed, and what an answer says that had to wait for it (docs/internals/consistency.md, rules 41
// and 44).
#include "server/shard/owners_harness.h"

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

// A request over several slots is answered when the last of them is committed: of two slots whose
// backups are on different servers, whichever confirms last.
TEST(Commitment, AnAnswerOverSeveralSlotsWaitsForTheLastBackup) {
  for (const uint32_t late : {1u, 2u}) {
    SCOPED_TRACE("server " + std::to_string(late) + " is late");
    OwnersHarness h(3, 2);
    const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kAsync));
    for (wire::SlotOwner& owner : h.state.slots) {
      const bool even = &owner == &h.state.slots[0] || &owner == &h.state.slots[2];
      std::erase_if(owner.backups, [&](const auto& backup) { return backup.server != (even ? 1 : 2); });
    }
    h.Publish();
    h.Carry();
    h.stalled = {late};
    h[0].Deliver(0, h[0].Push(0, table, {{0, 1, 1}, {1, 2, 1}, {2, 3, 1}, {3, 4, 1}}));
    h[0].Deliver(1, h[0].Pull(1, table, {0, 1, 2, 3}));
    h.Carry();
    EXPECT_EQ(h[0].Answer(0), "");
    EXPECT_EQ(h[0].Answer(1), "");
    h[0].Deliver(1, h[0].Pull(1, table, {late == 1 ? 1u : 0u}));
    EXPECT_EQ(h[0].Answer(1), late == 1 ? "values -2" : "values -1") << "that slot alone is committed";
    h.stalled.clear();
    h.Carry();
    EXPECT_EQ(h[0].Answer(0), "applied");
    EXPECT_EQ(h[0].Answer(1), "values -1 -2 -3 -4");
  }
}

// The same for one backup that confirms one slot's operation before the other's.
TEST(Commitment, AnAnswerOverSeveralSlotsWaitsForTheLastOperation) {
  for (const uint32_t first : {0u, 1u}) {
    SCOPED_TRACE("slot " + std::to_string(first) + " is pushed first");
    OwnersHarness h(2, 1);
    const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kAsync));
    h.Carry();
    h.stalled = {0};
    h[0].Deliver(0, h[0].Push(0, table, {{first, 2, 1}}));
    h.Carry();  // the backup has it; its word has not come
    h.stalled = {1};
    h[0].Deliver(0, h[0].Push(0, table, {{1 - first, 2, 1}}));
    h[0].Deliver(1, h[0].Pull(1, table, {0, 1}));
    h.Carry();
    EXPECT_EQ(h[0].Answer(0), "applied") << "the first push";
    EXPECT_EQ(h[0].Answer(0), "") << "the second one";
    EXPECT_EQ(h[0].Answer(1), "") << "the backup lacks one of the two values";
    h.stalled.clear();
    h.Carry();
    EXPECT_EQ(h[0].Answer(0), "applied");
    EXPECT_EQ(h[0].Answer(1), "values -2 -2");
  }
}

// An answer about every slot, as that to a round's mark: the slowest one decides, whichever it is.
TEST(Commitment, ARoundIsAnsweredWhenItsLastSlotIsCommitted) {
  for (uint32_t late = 0; late < OwnersHarness::kSlots; ++late) {
    SCOPED_TRACE("slot " + std::to_string(late) + " is late");
    OwnersHarness h(3, 2);
    const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kSync));
    for (uint32_t slot = 0; slot < OwnersHarness::kSlots; ++slot)
      std::erase_if(h.state.slots[slot].backups,
                    [&](const auto& backup) { return backup.server != (slot == late ? 2 : 1); });
    h.Publish();
    h.Carry();
    h.stalled = {2};
    for (uint32_t rank : {0u, 1u}) h[0].Deliver(rank, h[0].Give(rank, table, 0, 0, 2));
    h.Carry();
    EXPECT_EQ(h[0].Open(table, late), 1u);
    EXPECT_EQ(h[0].Answer(0) + h[0].Answer(1), "");
    h.stalled.clear();
    h.Carry();
    EXPECT_EQ(h[0].Answer(0), "closed");
    EXPECT_EQ(h[0].Answer(1), "closed");
  }
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

// A client that hears nothing takes its connection for dead and sends everything again.
TEST(Commitment, WhoeverWaitsForAHeldAnswerHearsSo) {
  OwnersHarness h(2, 1);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kAsync));
  h.Carry();
  h.stalled.insert(1);
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  h[0].Deliver(0, h[0].Push(0, table, {{0, 3, 2}}));
  h[0].Deliver(1, h[0].Pull(1, table, {0}));
  h[0].shard->OnTick(h.now += 900'000);
  EXPECT_EQ(h[0].Answer(0), "");
  for (int second = 0; second < 3; ++second) {
    h[0].shard->OnTick(h.now += 1'000'000);
    EXPECT_EQ(h[0].Answer(0), "held for server 1 thread 0 at host:2 to confirm")
        << "the oldest speaks for both";
    EXPECT_EQ(h[0].Answer(1), "held for server 1 thread 0 at host:2 to confirm");
    EXPECT_EQ(h[0].Answer(0), "");
  }
  h.stalled.clear();
  for (int i = 0; i < 50; ++i) {  // the stream connects again
    h[0].shard->OnTick(h.now += 100'000);
    h.Carry();
  }
  EXPECT_EQ(h[0].AnswerAtLast(0), "applied");
  EXPECT_EQ(h[0].AnswerAtLast(0), "applied");
  EXPECT_EQ(h[0].AnswerAtLast(1), "values -5");
  h[0].shard->OnTick(h.now += 2'000'000);
  EXPECT_EQ(h[0].Answer(0), "");
}

TEST(Commitment, AnAnswerThatWaitsForOwnersSaysHowMany) {
  OwnersHarness h(2, 1);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kAsync));
  h.Carry();
  h.state.min_in_sync = 2;
  for (wire::SlotOwner& owner : h.state.slots) owner.backups.clear();
  h.Publish();
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  h[0].shard->OnTick(h.now += 1'000'000);
  EXPECT_EQ(h[0].Answer(0), "held for 2 owners in sync (--min-in-sync)");
}

}  // namespace
}  // namespace cairn::server
