// Owners of a slot: what is acknowledged, what is on the backups, and what a new primary knows
// (docs/internals/consistency.md, rules 40 to 45).
#include "base/random.h"
#include "server/shard/owners_harness.h"
#include "wire/replica.h"

namespace cairn::server {
namespace {

constexpr const char* kMoved = "is no longer the owner";
TableSpec Async() { return ShardHarness::Sparse(Mode::kAsync); }
TableSpec Sync() { return ShardHarness::Sparse(Mode::kSync); }
bool SameContent(OwnersHarness& h, uint32_t a, uint32_t b) {
  for (uint32_t slot = 0; slot < OwnersHarness::kSlots; ++slot)
    if (h[a].shard->ContentHash(SlotId{slot}) != h[b].shard->ContentHash(SlotId{slot})) return false;
  return true;
}

TEST(Replication, APushIsAcknowledgedWhenTheBackupHasIt) {
  OwnersHarness h(2, 1);
  const TableId table = h.AddTable(Async());
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}, {1, 3, 1}}));
  EXPECT_EQ(h[0].Answer(0), "");
  EXPECT_EQ(h[0].shard->high_water().held_answers, 1u);
  h.Carry();
  EXPECT_EQ(h[0].Answer(0), "applied");
  EXPECT_EQ(h[1].Stored(table, 0), -2.0f);
  EXPECT_EQ(h[1].shard->Received(SlotId{0}), h[0].shard->Applied(SlotId{0}));
  EXPECT_TRUE(SameContent(h, 0, 1));
}

TEST(Replication, DuplicatesAndPullsWaitForCommitmentToo) {
  OwnersHarness h(2, 1);
  const TableId table = h.AddTable(Async());
  const auto push = h[0].Push(0, table, {{0, 2, 1}});
  h[0].Deliver(0, push);
  h[0].Deliver(0, push);
  h[0].Deliver(1, h[0].Pull(1, table, {0}));
  EXPECT_EQ(h[0].Answer(0) + h[0].Answer(1), "");
  h.Carry();
  EXPECT_EQ(h[0].Answer(0), "applied");
  EXPECT_EQ(h[0].Answer(0), "applied");
  EXPECT_EQ(h[0].Answer(1), "values -2");
  h[0].Deliver(1, h[0].Pull(1, table, {0}));  // nothing is under way: at once
  EXPECT_EQ(h[0].Answer(1), "values -2");
}

TEST(Replication, ANewPrimaryKnowsNumbersAndRefusals) {
  OwnersHarness h(2, 1);
  const TableId table = h.AddTable(Async());
  const auto good = h[0].Push(0, table, {{0, 2, 1}});
  const auto bad = h[0].Push(0, table, {{0, std::numeric_limits<float>::quiet_NaN(), 2}});
  h[0].Deliver(0, good);
  h[0].Deliver(0, bad);
  h.Carry();
  EXPECT_EQ(h[0].Answer(0), "applied");
  const std::string refusal = h[0].Answer(0);
  EXPECT_NE(refusal.find("0:"), std::string::npos);
  h.Fail(0, 1);
  h.Carry();
  h[1].Deliver(0, h[1].Push(0, table, {{0, 2, 1}}));
  EXPECT_EQ(h[1].Answer(0), "applied");
  EXPECT_EQ(h[1].Stored(table, 0), -2.0f) << "applied twice";
  h[1].Deliver(0, h[1].Push(0, table, {{0, std::numeric_limits<float>::quiet_NaN(), 2}}));
  EXPECT_EQ(h[1].Answer(0), refusal);
  h[1].Deliver(0, h[1].Push(0, table, {{0, 1, 3}}));
  EXPECT_EQ(h[1].Answer(0), "applied");
}

TEST(Replication, ADeposedPrimaryAcknowledgesNothing) {
  OwnersHarness h(2, 1);
  const TableId table = h.AddTable(Async());
  h.deaf.insert(0);
  // Without its servers' list entry the old primary would be refused at its Hello; here the stream is up.
  for (wire::SlotOwner& owner : h.state.slots) owner = {1, 0, 2, h.state.version.Next(), wire::kNoServer, {}};
  h.Publish();
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  h.Carry();
  EXPECT_NE(h[0].Answer(0).find(kMoved), std::string::npos);
  EXPECT_EQ(h[1].Stored(table, 0), std::nullopt);
  h[1].Deliver(0, h[1].Push(0, table, {{0, 2, 1}}));
  EXPECT_EQ(h[1].Answer(0), "applied");
}

TEST(Replication, AClosedRoundIsOnTheBackupWithItsOutcome) {
  OwnersHarness h(2, 1);
  const TableId table = h.AddTable(Sync());
  h[0].Deliver(0, h[0].Give(0, table, 0, 0, 2));
  h[0].Deliver(1, h[0].Give(1, table, 0, 1, 4));
  EXPECT_EQ(h[0].Open(table, 0), 1u);
  EXPECT_EQ(h[0].Answer(0) + h[0].Answer(1), "");
  h.Carry();
  EXPECT_EQ(h[0].Answer(0), "closed");
  EXPECT_EQ(h[0].Answer(1), "closed");
  EXPECT_EQ(h[1].Open(table, 0), 1u);
  EXPECT_EQ(h[1].Open(table, 2), 1u);
  EXPECT_EQ(h[1].Stored(table, 1), -2.0f);
  EXPECT_TRUE(SameContent(h, 0, 1));
  // Differing hyper-parameters: the outcome goes along, and a copy after the failover is told it.
  h[0].Deliver(0, h[0].Give(0, table, 1, 0, 1, 1, 1));
  h[0].Deliver(1, h[0].Give(1, table, 1, 0, 1, 1, 2));
  h.Carry();
  const std::string said = h[0].Answer(0);
  EXPECT_NE(said.find("hyper"), std::string::npos) << said;
  h.Fail(0, 1);
  h[1].Deliver(0, h[1].Give(0, table, 1, 0, 1, 1, 1));
  EXPECT_EQ(h[1].Answer(0), said);
}

TEST(Replication, ARoundThatWasOnlyStagedIsSentAgain) {
  OwnersHarness h(2, 1);
  const TableId table = h.AddTable(Sync());
  h[0].Deliver(0, h[0].Give(0, table, 0, 0, 2));
  h.Carry();
  h.Fail(0, 1);
  h[1].Deliver(1, h[1].Give(1, table, 0, 0, 4));
  EXPECT_EQ(h[1].Open(table, 0), 0u);
  h[1].Deliver(0, h[1].Give(0, table, 0, 0, 2));
  EXPECT_EQ(h[1].Answer(1), "closed");
  EXPECT_EQ(h[1].Stored(table, 0), -3.0f);
}

TEST(Replication, ASumKnowsItsContributorsAfterAFailover) {
  OwnersHarness h(2, 1);
  const TableId table = h.AddTable(Sync());
  const auto give = [&](uint32_t server, uint32_t rank, float value) {
    return h[server].Contribute(rank, table, 0, {{0, value}},
                                {.done = std::vector<uint32_t>{0}, .flags = wire::kParamTwoPhase});
  };
  h[0].Deliver(0, give(0, 0, 2));
  h[0].Deliver(1, give(0, 1, 4));
  h.Carry();
  EXPECT_EQ(h[0].Answer(0), "report 0=9");
  h.Fail(0, 1);
  h[1].Deliver(0, give(1, 0, 2));  // a copy: known, and told the same
  EXPECT_EQ(h[1].Answer(0), "report 0=9");
  for (uint32_t rank : {0u, 1u}) {
    h[1].Deliver(rank,
                 h[1].Rows(rank, wire::FrameType::kDone, table, Round{0}, {},
                           {.done = std::vector<uint32_t>{}, .flags = wire::kParamDecide, .scale = 0.5}));
  }
  EXPECT_EQ(h[1].Stored(table, 0), -1.5f);
}

TEST(Replication, ANewBackupIsCopiedToAndThenTakesOver) {
  OwnersHarness h(3, 1);
  const TableId sync = h.AddTable(Sync());
  TableSpec spec = Async();
  spec.name = "a";
  const TableId async = h.AddTable(spec);
  h[0].Deliver(0, h[0].Push(0, async, {{0, 2, 1}, {2, 3, 1}}));
  h[0].Deliver(0, h[0].Give(0, sync, 0, 0, 2));
  h[0].Deliver(1, h[0].Done(1, sync, 0));
  h.Carry();
  h.AddBackup(2);
  EXPECT_FALSE(h[0].shard->WaitsFor(SlotId{0}, 2));
  h[0].Deliver(0, h[0].Push(0, async, {{0, 1, 2}}));  // behind the copy
  EXPECT_TRUE(h.News(0, wire::SlotNews::kCaughtUp).empty());
  h.Carry();
  EXPECT_EQ(h.News(0, wire::SlotNews::kCaughtUp).size(), OwnersHarness::kSlots);
  EXPECT_TRUE(h[0].shard->WaitsFor(SlotId{0}, 2));
  h.MarkInSync(2);
  h.nodes[0]->now = h.now += 200'000;
  h[0].shard->OnTick(h.now);  // with two backups they hear later what is committed
  h.Carry();
  EXPECT_TRUE(SameContent(h, 0, 2));
  EXPECT_TRUE(SameContent(h, 1, 2));
  h[0].SkipAnswers();
  h.Fail(0, 2);
  h.Carry();
  h[2].Deliver(0, h[2].Push(0, async, {{0, 1, 2}}));
  h.Carry();
  EXPECT_EQ(h[2].Answer(0), "applied");
  EXPECT_EQ(h[2].Stored(async, 0), -3.0f);
  EXPECT_EQ(h[2].Open(sync, 0), 1u);
  EXPECT_TRUE(SameContent(h, 1, 2));
}

// Pieces of a copy go a few at a time, and operations pass between them: of other slots, and of the
// very slot, which the backup keeps until it has the rest.
TEST(Replication, OperationsPassBetweenThePiecesOfACopy) {
  ShardOptions options;
  options.copy_chunk_bytes = 16;
  OwnersHarness h(2, 0, options);
  const TableId table = h.AddTable(Async());
  for (uint64_t n = 1; n <= 20; ++n) h[0].Deliver(0, h[0].Push(0, table, {{0, 1, n}, {1, 1, n}}));
  h.AddBackup(1);
  h.CarryOnce();  // the connection
  uint64_t number = 20;
  for (int i = 0; i < 200 && h.News(0, wire::SlotNews::kCaughtUp).size() < OwnersHarness::kSlots; ++i) {
    h.CarryOnce();
    ++number;
    h[0].Deliver(0, h[0].Push(0, table, {{0, 1, number}, {1, 1, number}}));
  }
  EXPECT_GT(number, 25u) << "the copies went in many pieces";
  h.Carry();
  ASSERT_EQ(h.News(0, wire::SlotNews::kCaughtUp).size(), OwnersHarness::kSlots);
  EXPECT_EQ(h[1].shard->Received(SlotId{0}), h[0].shard->Applied(SlotId{0}));
  EXPECT_EQ(h[1].Stored(table, 0), -static_cast<float>(number));
  EXPECT_EQ(h[1].Stored(table, 1), -static_cast<float>(number));
  EXPECT_TRUE(SameContent(h, 0, 1));
}

TEST(Replication, WhatIsNotCommittedIsNotAppliedAndBecomesVoid) {
  OwnersHarness h(3, 2);
  const TableId table = h.AddTable(Async());
  h.stalled.insert(1);
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  h.Carry();
  EXPECT_EQ(h[0].Answer(0), "");
  EXPECT_EQ(h[2].shard->Received(SlotId{0}).index(), 1u);
  EXPECT_EQ(h[2].Stored(table, 0), std::nullopt) << "server 1 does not have it yet";
  h.Fail(0, 1);  // server 1 never gets it
  h.stalled.clear();
  h.Carry();
  EXPECT_EQ(h[2].shard->Received(SlotId{0}).index(), 0u);
  h[1].Deliver(0, h[1].Push(0, table, {{0, 5, 1}}));
  h.Carry();
  EXPECT_EQ(h[1].Answer(0), "applied");
  EXPECT_EQ(h[2].Stored(table, 0), -5.0f);
  EXPECT_TRUE(SameContent(h, 1, 2));
}

TEST(Replication, ANewPrimaryCommitsItsTail) {
  OwnersHarness h(3, 2);
  const TableId table = h.AddTable(Async());
  h.stalled.insert(2);
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  h.Carry();
  EXPECT_EQ(h[1].Stored(table, 0), std::nullopt);
  h.Fail(0, 1);
  EXPECT_EQ(h[1].Stored(table, 0), -2.0f);
  h[1].Deliver(0, h[1].Push(0, table, {{0, 2, 1}}));
  EXPECT_EQ(h[1].Answer(0), "") << "a duplicate of what server 2 does not have";
  h.stalled.clear();
  h.Carry();
  EXPECT_EQ(h[1].Answer(0), "applied");
  EXPECT_EQ(h[2].Stored(table, 0), -2.0f);
}

// What was acknowledged is not lost if the new primary dies too, in the middle of its tail.
TEST(Replication, ABackupKeepsWhatItHasConfirmedUntilItsNewPrimaryHasSentItAgain) {
  for (size_t carried = 0; carried < 4; ++carried) {
    ShardOptions options;
    options.bounds.batch_bytes = 1;  // each operation in a frame of its own
    OwnersHarness h(3, 2, options);
    const TableId table = h.AddTable(Async());
    h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
    h[0].Deliver(0, h[0].Push(0, table, {{0, 3, 2}}));
    h.Carry();
    EXPECT_EQ(h[0].Answer(0), "applied");
    EXPECT_EQ(h[0].Answer(0), "applied");
    // The backups have both and don't know yet that the other one has them too.
    ASSERT_EQ(h[2].Stored(table, 0), std::nullopt);
    size_t frames = 0;
    h.drop = [&](uint32_t to, const wire::InFrame& frame) {
      return to == 2 && frame.header.type == wire::FrameType::kReplicate && ++frames > carried;
    };
    h.Fail(0, 1);
    h.Carry();
    EXPECT_GT(frames, carried) << "kContinue and two operations, and more";
    h.Fail(1, 2);
    EXPECT_EQ(h[2].Stored(table, 0), -5.0f) << carried << " frames came";
  }
}

TEST(Replication, ATailOfAnotherLineIsNotKept) {
  OwnersHarness h(4, 3);
  const TableId table = h.AddTable(Async());
  h.stalled = {1, 3};
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));  // reaches server 2 alone
  h.Carry();
  h.Fail(0, 1);
  h.stalled = {2};
  h[1].Deliver(1, h[1].Push(1, table, {{0, 5, 1}}));  // at the same index, reaches server 3 alone
  h.Carry();
  EXPECT_EQ(h[3].shard->Received(SlotId{0}).index(), 1u);
  h.Fail(1, 2);
  h.stalled.clear();
  h.Carry();
  h[2].Deliver(0, h[2].Push(0, table, {{0, 2, 1}}));
  h[2].Deliver(1, h[2].Push(1, table, {{0, 5, 1}}));
  h.Carry();
  EXPECT_EQ(h[2].Answer(0), "applied");
  EXPECT_EQ(h[2].Answer(1), "applied");
  EXPECT_EQ(h[2].Stored(table, 0), -7.0f);
  EXPECT_EQ(h[3].Stored(table, 0), -7.0f) << "one is lost, the other there twice";
}

TEST(Replication, APrimaryThatMissedAnEpochGoesOn) {
  OwnersHarness h(2, 1);
  const TableId table = h.AddTable(Async());
  h.deaf.insert(0);
  for (wire::SlotOwner& owner : h.state.slots) owner = {1, 0, 2, h.state.version.Next(), wire::kNoServer, {}};
  h.Publish();
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  h.Carry();
  EXPECT_NE(h[0].Answer(0).find(kMoved), std::string::npos);
  h.deaf.clear();
  for (wire::SlotOwner& owner : h.state.slots) owner = {0, 0, 3, h.state.version.Next(), wire::kNoServer, {}};
  h.Publish();
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  h.Carry();
  EXPECT_EQ(h[0].Answer(0), "applied");
}

TEST(Replication, APrimaryThatNeverHeardOfTheFirstEpochBeginsWithItsBackups) {
  OwnersHarness h(3, 2);
  const TableId table = h.AddTable(Async());
  h.nodes[1] = std::make_unique<DenseHarness>(2, ShardOptions(), 1);  // it has heard of no owners yet
  h.Fail(0, 1);
  for (uint32_t rank = 0; rank < 2; ++rank) h[1].Connect(rank);
  h[1].SkipAnswers();
  h[1].Deliver(0, h[1].Push(0, table, {{0, 2, 1}}));
  h.Carry();
  EXPECT_EQ(h[1].Answer(0), "applied");
  EXPECT_TRUE(h.News(1, wire::SlotNews::kDiverged).empty());
  EXPECT_EQ(h[2].Stored(table, 0), -2.0f);
}

// A backup that can't follow is on record as in sync until the scheduler hears of it.
TEST(Replication, NothingIsCommittedWithoutABackupThatCanNotFollow) {
  OwnersHarness h(3, 2);
  const TableId table = h.AddTable(Async());
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  h.Carry();
  EXPECT_EQ(h[0].Answer(0), "applied");
  wire::ClusterState other = h.state;
  other.version = other.version.Next();
  other.slots[0].backups.pop_back();
  h[2].shard->OnState(std::make_shared<wire::ClusterState>(other), h.now);  // so it refuses the slot
  h[0].Deliver(0, h[0].Push(0, table, {{0, 3, 2}}));
  h.Carry();
  ASSERT_EQ(h.News(0, wire::SlotNews::kDiverged).size(), 1u);
  h[0].Deliver(0, h[0].Push(0, table, {{0, 4, 3}}));
  h.Carry();
  EXPECT_EQ(h[0].Answer(0), "");
  EXPECT_EQ(h[1].Stored(table, 0), -2.0f) << "server 2, on record as in sync, does not have the others";
}

// It is made a backup again; what its last confirmation refuses is from before.
TEST(Replication, ABackupThatCouldNotFollowIsCopiedToAgain) {
  OwnersHarness h(2, 1);
  const TableId table = h.AddTable(Async());
  wire::ClusterState other = h.state;
  other.version = other.version.Next();
  other.slots[0].backups.clear();
  h[1].shard->OnState(std::make_shared<wire::ClusterState>(other), h.now);  // so it refuses the slot
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  h.Carry();
  ASSERT_EQ(h.News(0, wire::SlotNews::kDiverged).size(), 1u);
  h.stalled.insert(0);
  h[0].Deliver(0, h[0].Push(0, table, {{1, 3, 1}}));
  h.Carry();  // confirmed, which names slot 0 once more
  h.state.version = other.version;
  h.state.slots[0].backups[0] = {1, 0, false, h.state.version.Next()};
  h.Publish();
  h[0].shard->OnTick(h.now);  // the copy begins
  h.stalled.clear();
  h.Carry();
  EXPECT_TRUE(h.News(0, wire::SlotNews::kDiverged).empty());
  EXPECT_EQ(h.News(0, wire::SlotNews::kCaughtUp).size(), 1u);
}

TEST(Replication, AnswersToAConnectionThatIsGoneAreNotKept) {
  OwnersHarness h(2, 1);
  const TableId table = h.AddTable(Async());
  h.stalled.insert(1);
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  EXPECT_EQ(h[0].shard->high_water().held_answers, 1u);
  h[0].shard->OnDisconnect(h[0].conns[0], h.now);
  EXPECT_EQ(h[0].shard->high_water().held_answers, 0u);
}

TEST(Replication, ANewBackupDoesNotWaitForOneThatIsGone) {
  OwnersHarness h(3, 1);
  const TableId table = h.AddTable(Async());
  h.stalled.insert(1);
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  h.AddBackup(2);
  h.Carry();
  EXPECT_TRUE(h.News(0, wire::SlotNews::kCaughtUp).size() < OwnersHarness::kSlots);
  for (wire::SlotOwner& owner : h.state.slots) owner.backups.erase(owner.backups.begin());
  h.Publish();
  h.Carry();
  EXPECT_EQ(h.News(0, wire::SlotNews::kCaughtUp).size(), OwnersHarness::kSlots);
}

TEST(Replication, ARestartedBackupIsAnotherOne) {
  OwnersHarness h(2, 1);
  const TableId table = h.AddTable(Async());
  h.nodes[1] = std::make_unique<DenseHarness>(2, ShardOptions{}, 1);
  h.nodes[1]->shard = Shard::Make({}, h.nodes[1]->net, h.nodes[1]->pool);
  h.nodes[1]->shard->OnRegistered(1, Incarnation{9});  // at the same address, empty
  h.Tell(1);
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  for (int i = 0; i < 20; ++i) {
    h.now += 1'000'000;
    h[0].shard->OnTick(h.now);
    h.Carry();
  }
  EXPECT_EQ(h[0].AnswerAtLast(0), "");
}

TEST(Replication, HandingOverLosesNothing) {
  OwnersHarness h(2, 1);
  const TableId table = h.AddTable(Async());
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  for (wire::SlotOwner& owner : h.state.slots) owner.heir = 1;
  h.Publish();
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 2}}));
  EXPECT_NE(h[0].Answer(0).find("unavailable"), std::string::npos);
  EXPECT_TRUE(h.News(0, wire::SlotNews::kHandedOver).size() < OwnersHarness::kSlots);
  h.Carry();
  EXPECT_EQ(h[0].Answer(0), "applied");
  EXPECT_EQ(h.News(0, wire::SlotNews::kHandedOver).size(), OwnersHarness::kSlots);
  for (wire::SlotOwner& owner : h.state.slots)
    owner = {1, 0, 2, h.state.version.Next(), wire::kNoServer, {{0, 0, true, h.state.version.Next()}}};
  h.Publish();
  h.Carry();
  h[1].Deliver(0, h[1].Push(0, table, {{0, 2, 2}}));
  EXPECT_EQ(h[1].Answer(0), "");
  h.Carry();
  EXPECT_EQ(h[1].Answer(0), "applied");
  EXPECT_EQ(h[0].Stored(table, 0), -4.0f);
  EXPECT_TRUE(SameContent(h, 0, 1));
}

TEST(Replication, MinInSyncHoldsAnswersBack) {
  OwnersHarness h(3, 1);
  const TableId table = h.AddTable(Async());
  h.state.min_in_sync = 2;
  for (wire::SlotOwner& owner : h.state.slots) owner.backups.clear();
  h.Publish();
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  h.Carry();
  EXPECT_EQ(h[0].Answer(0), "");
  h.AddBackup(2);
  h.Carry();
  EXPECT_EQ(h[0].Answer(0), "");
  h.MarkInSync(2);
  h.Carry();
  EXPECT_EQ(h[0].Answer(0), "applied");
}

TEST(Replication, ABackupThatIsTakenAwayIsNoLongerWaitedFor) {
  OwnersHarness h(2, 1);
  const TableId table = h.AddTable(Async());
  h.stalled.insert(1);
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  h.now += 11'000'000;
  h[0].shard->OnTick(h.now);
  EXPECT_TRUE(h.News(0, wire::SlotNews::kSlow).empty()) << "it did not run itself";
  for (int i = 0; i < 110; ++i) h[0].shard->OnTick(h.now += 100'000);
  EXPECT_FALSE(h.News(0, wire::SlotNews::kSlow).empty());
  EXPECT_EQ(h[0].AnswerAtLast(0), "");
  for (wire::SlotOwner& owner : h.state.slots) owner.backups.clear();
  h.Publish();
  EXPECT_EQ(h[0].Answer(0), "applied");
}

TEST(Replication, ADifferenceBetweenOwnersIsNoticed) {
  std::vector<std::string> lines;
  ShardOptions options;
  options.log = [&](const std::string& line) { lines.push_back(line); };
  OwnersHarness h(2, 1, options);
  const TableId table = h.AddTable(Async());
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  h.now += 60'000'000;
  h[0].shard->OnTick(h.now);  // the right hash of some slot goes along
  h.Carry();
  EXPECT_TRUE(lines.empty());
  // The same stream says that the primary has something else at this position.
  h.deaf.insert(0);
  wire::ReplicaHello hello;
  hello.cluster_id = "test";
  hello.from_incarnation = Incarnation{1};
  hello.to_incarnation = Incarnation{2};
  h[1].Control(ConnId{77}, hello);
  const auto reply = h[1].NextOn(ConnId{77});
  const auto greeted = wire::DecodeControl(reply->header, reply->body());
  wire::OpBatch batch(h[1].pool);
  wire::OpHeader header;
  header.kind = wire::OpKind::kHash;
  header.slot = 0;
  header.epoch = 1;
  header.index = header.committed = 1;
  header.a = h[0].shard->ContentHash(SlotId{0}) + 1;
  header.b = Mix64(0, table.value);
  batch.Add(header, nullptr, {}, {}, {});
  h[1].Deliver(ConnId{77}, *batch.Take(std::get<wire::ReplicaHelloReply>(*greeted).received + 1, 1,
                                       h.state.version.value));
  ASSERT_FALSE(lines.empty());
  EXPECT_NE(lines[0].find("ERROR: partition 0 differs from its primary's at position 1.1"),
            std::string::npos);
  EXPECT_EQ(h[1].shard->Received(SlotId{0}), Position{}) << "it has to be copied anew";
}

}  // namespace
}  // namespace cairn::server
