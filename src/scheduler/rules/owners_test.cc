// Single changes of owners: forming with backups, promotion, news, handover (rules 3, 43 to 45, 47).
#include <gtest/gtest.h>

#include <set>

#include "scheduler/rules/durable.h"
#include "scheduler/rules/membership.h"
#include "scheduler/rules/owners.h"
#include "scheduler/rules/views.h"

namespace cairn::scheduler {
namespace {

using News = wire::SlotNews;

DurableState Formed(std::vector<uint32_t> threads, uint32_t slots, uint32_t replicas) {
  DurableState d;
  d.slot_count = slots;
  d.initial_servers = d.state.expected_servers = static_cast<uint32_t>(threads.size());
  d.state.expected_workers = 1;
  d.state.replicas = replicas;
  d.state.version = StateVersion(5);
  for (uint32_t i = 0; i < threads.size(); ++i)
    AddNode(d,
            {.role = wire::Role::kServer,
             .uid = 100 + i,
             .endpoint = {"h", static_cast<uint16_t>(9000 + i)},
             .threads = threads[i]},
            i, 0);
  AddNode(d, {.role = wire::Role::kWorker, .uid = 1, .endpoint = {"w", 0}}, 0, 0);
  Form(d);
  d.state.version = d.state.version.Next();
  return d;
}

Incarnation Of(const DurableState& d, uint32_t server) { return d.state.FindServer(server)->incarnation; }

TEST(Forming, BackupsAreSpreadOverAllOtherServersAndThreads) {
  for (uint32_t replicas : {2u, 3u}) {
    const DurableState d = Formed({2, 2, 2, 2}, 256, replicas);
    std::map<std::pair<int, int>, int> shared, owned_by_thread;
    for (const wire::SlotOwner& slot : d.state.slots) {
      ASSERT_EQ(slot.backups.size(), replicas - 1);
      ++owned_by_thread[{slot.server, slot.thread}];
      std::set<int> servers = {slot.server};
      for (const wire::Backup& backup : slot.backups) {
        EXPECT_TRUE(backup.in_sync);
        EXPECT_EQ(backup.added, slot.since);
        EXPECT_TRUE(servers.insert(backup.server).second);
        ++shared[{slot.server, backup.server}];
        ++owned_by_thread[{backup.server, backup.thread}];
      }
    }
    ASSERT_EQ(shared.size(), 12u) << "each server's slots have backups on each other one";
    for (const auto& [pair, count] : shared) EXPECT_NEAR(count, 64.0 * (replicas - 1) / 3, 1.0);
    for (const auto& [shard, count] : owned_by_thread) EXPECT_NEAR(count, 32.0 * replicas, 1.0);
  }
}

TEST(Forming, WithFewerServersThanReplicasEveryServerHasEverything) {
  const DurableState d = Formed({1, 1}, 16, 3);
  for (const wire::SlotOwner& slot : d.state.slots) EXPECT_EQ(slot.backups.size(), 1u);
  EXPECT_EQ(d.state.replicas, 3u);
  for (const wire::SlotOwner& slot : Formed({1}, 16, 2).state.slots) EXPECT_TRUE(slot.backups.empty());
}

TEST(RemoveServer, PromotesOwnersInSyncAndSpreadsTheWork) {
  DurableState d = Formed({1, 1, 1, 1}, 60, 2);
  const DurableState before = d;
  ASSERT_TRUE(SlotsOnlyAt(d.state, 1).empty());
  RemoveServer(d, Of(d, 1), NodeFate::kRetired);
  EXPECT_EQ(d.state.FindServer(1), nullptr);
  EXPECT_EQ(d.FindNode(Of(before, 1))->fate, NodeFate::kRetired);
  EXPECT_EQ(d.state.failovers, 15u);
  std::map<int, int> primaries;
  for (size_t slot = 0; slot < 60; ++slot) {
    const wire::SlotOwner &was = before.state.slots[slot], &is = d.state.slots[slot];
    ++primaries[is.server];
    EXPECT_NE(is.server, 1);
    EXPECT_EQ(is.FindBackup(1), nullptr);
    if (was.server == 1) {
      EXPECT_EQ(is.epoch, was.epoch + 1);
      EXPECT_EQ(is.since, d.state.version);
      EXPECT_EQ(is.thread, was.FindBackup(is.server)->thread);
      EXPECT_TRUE(is.backups.empty());
    } else {
      EXPECT_EQ(is.epoch, was.epoch) << "only new primaries begin an epoch";
      EXPECT_EQ(is.since, was.since);
    }
  }
  for (int server : {0, 2, 3}) EXPECT_EQ(primaries[server], 20);
}

TEST(RemoveServer, NeverPromotesABackupThatIsNotInSync) {
  DurableState d = Formed({1, 1, 1}, 12, 3);
  for (wire::SlotOwner& slot : d.state.slots)
    for (wire::Backup& backup : slot.backups)
      if (backup.server == (slot.server + 1) % 3) backup.in_sync = false;
  const DurableState before = d;
  RemoveServer(d, Of(d, 0), NodeFate::kRetired);
  for (size_t slot = 0; slot < 12; ++slot) {
    if (before.state.slots[slot].server != 0) continue;
    EXPECT_EQ(d.state.slots[slot].server, 2);
    ASSERT_EQ(d.state.slots[slot].backups.size(), 1u) << "the others stay as they are";
    EXPECT_EQ(d.state.slots[slot].backups[0], *before.state.slots[slot].FindBackup(1));
  }
  // Slots that only server 1 has in sync now are lost with it.
  for (wire::SlotOwner& slot : d.state.slots)
    for (wire::Backup& backup : slot.backups) backup.in_sync = false;
  const std::vector<uint32_t> only = SlotsOnlyAt(d.state, 1);
  EXPECT_FALSE(only.empty());
  for (uint32_t slot : only) EXPECT_EQ(d.state.slots[slot].server, 1);
}

TEST(RemoveServer, TakesASuspectOnlyIfItMust) {
  DurableState d = Formed({1, 1, 1}, 12, 3);
  RemoveServer(d, Of(d, 0), NodeFate::kRetired, std::vector<uint32_t>{2});
  for (const wire::SlotOwner& slot : d.state.slots)
    if (slot.epoch == 2) {
      EXPECT_EQ(slot.server, 1);
    }
  DurableState e = Formed({1, 1}, 12, 2);
  RemoveServer(e, Of(e, 0), NodeFate::kRetired, std::vector<uint32_t>{1});
  for (const wire::SlotOwner& slot : e.state.slots) EXPECT_EQ(slot.server, 1);
}

TEST(RemoveServer, EndsAHandoverToOrFromIt) {
  DurableState d = Formed({1, 1, 1}, 12, 3);
  const uint32_t from = 0;  // slot 0: server 0
  ASSERT_EQ(d.state.slots[from].server, 0);
  BeginHandover(d, from, 1);
  DurableState heir_died = d, primary_died = d, other_died = d;
  RemoveServer(heir_died, Of(d, 1), NodeFate::kRetired);
  EXPECT_EQ(heir_died.state.slots[from].heir, wire::kNoServer);
  EXPECT_EQ(heir_died.state.slots[from].epoch, 1u);
  RemoveServer(primary_died, Of(d, 0), NodeFate::kRetired);
  EXPECT_EQ(primary_died.state.slots[from].heir, wire::kNoServer);
  EXPECT_EQ(primary_died.state.slots[from].epoch, 2u);
  RemoveServer(other_died, Of(d, 2), NodeFate::kRetired);
  EXPECT_EQ(other_died.state.slots[from].heir, 1);
}

struct NewsTest : ::testing::Test {
  DurableState d = Formed({1, 1, 1}, 12, 2);
  uint32_t slot = 0;
  uint16_t third = 0;
  StateVersion added;
  void SetUp() override {
    ASSERT_EQ(d.state.slots[slot].server, 0);
    third = d.state.slots[slot].backups[0].server == 1 ? 2 : 1;
    added = d.state.version;
    AddBackup(d, slot, third, 0);
    d.state.version = d.state.version.Next();
  }
  News Caught() const { return {slot, News::kCaughtUp, third, 1, added}; }
  // Unchanged by what is not so any more.
  void ExpectStale(uint32_t sender, StateVersion held, const News& news) {
    DurableState copy = d;
    EXPECT_EQ(TakeNews(copy, sender, held, news), NewsEffect::kStale);
    EXPECT_EQ(copy, d);
  }
};

TEST_F(NewsTest, CaughtUpCountsForTheVeryBackupThatItWasSaidOf) {
  auto with = [&](auto change) {
    News news = Caught();
    change(news);
    ExpectStale(0, d.state.version, news);
  };
  with([](News& n) { n.epoch = 2; });
  with([](News& n) { n.epoch = 0; });
  with([&](News& n) { n.added = StateVersion(added.value - 1); });
  with([](News& n) { n.slot = 99; });
  with([](News& n) { n.server = 0; });
  with([](News& n) { n.kind = static_cast<News::Kind>(99); });
  ExpectStale(1, d.state.version, Caught());  // not the primary
  ASSERT_EQ(TakeNews(d, 0, d.state.version, Caught()), NewsEffect::kTaken);
  EXPECT_TRUE(d.state.slots[slot].FindBackup(third)->in_sync);
  EXPECT_EQ(d.moves_done, 1u);
  ExpectStale(0, d.state.version, Caught());  // a copy
}

TEST_F(NewsTest, OfAnEarlierLifeOfTheBackupDoesNotCount) {
  const News old = Caught();
  DropBackup(d, slot, third);
  d.state.version = d.state.version.Next();
  AddBackup(d, slot, third, 0);
  ExpectStale(0, d.state.version, old);
}

TEST_F(NewsTest, HandoverMakesTheHeirPrimaryAndTheOldOneABackupInSync) {
  ASSERT_EQ(TakeNews(d, 0, d.state.version, Caught()), NewsEffect::kTaken);
  const News done{slot, News::kHandedOver, third, 1, StateVersion(0)};
  ExpectStale(0, d.state.version, done);  // no heir
  BeginHandover(d, slot, third);
  ExpectStale(0, StateVersion(added.value - 1), done);  // said before this backup was there
  ExpectStale(1, d.state.version, done);
  d.state.version = d.state.version.Next();
  ASSERT_EQ(TakeNews(d, 0, d.state.version, done), NewsEffect::kTaken);
  const wire::SlotOwner& owner = d.state.slots[slot];
  EXPECT_EQ(owner.server, third);
  EXPECT_EQ(owner.epoch, 2u);
  EXPECT_EQ(owner.since, d.state.version);
  EXPECT_EQ(owner.heir, wire::kNoServer);
  ASSERT_NE(owner.FindBackup(0), nullptr);
  EXPECT_TRUE(owner.FindBackup(0)->in_sync);
  EXPECT_EQ(owner.FindBackup(0)->added, d.state.version);
  EXPECT_EQ(InSyncOwners(owner), 3u);
  ExpectStale(0, d.state.version, done);
}

TEST_F(NewsTest, SlowBackupIsDroppedUnlessItIsNeeded) {
  const wire::Backup in_sync = d.state.slots[slot].backups[0];
  const News slow{slot, News::kSlow, in_sync.server, 1, in_sync.added};
  d.state.min_in_sync = 2;
  EXPECT_EQ(TakeNews(d, 0, d.state.version, slow), NewsEffect::kNotAllowed);
  EXPECT_NE(d.state.slots[slot].FindBackup(in_sync.server), nullptr);
  // One that is only being copied to counts for nothing and may go.
  EXPECT_EQ(TakeNews(d, 0, d.state.version, {slot, News::kSlow, third, 1, added}), NewsEffect::kTaken);
  d.state.min_in_sync = 1;
  EXPECT_EQ(TakeNews(d, 0, d.state.version, slow), NewsEffect::kTaken);
  EXPECT_TRUE(d.state.slots[slot].backups.empty());
}

TEST_F(NewsTest, DivergedBackupIsDroppedWhateverIsAskedFor) {
  const wire::Backup in_sync = d.state.slots[slot].backups[0];
  d.state.min_in_sync = 2;
  BeginHandover(d, slot, in_sync.server);
  const News news{slot, News::kDiverged, in_sync.server, 1, in_sync.added};
  EXPECT_EQ(TakeNews(d, 0, d.state.version, news), NewsEffect::kTaken);
  EXPECT_EQ(d.state.slots[slot].FindBackup(in_sync.server), nullptr);
  EXPECT_EQ(d.state.slots[slot].heir, wire::kNoServer);
}

TEST_F(NewsTest, RecordBringsEverythingBack) {
  d.moves_done = 7;
  d.moving_from[slot] = 0;
  d.state.failovers = 3;
  d.state.servers[2].leaving = true;
  BeginHandover(d, slot, d.state.slots[slot].backups[0].server);
  auto again = DecodeRecord(EncodeRecord(d));
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(*again, d);
}

}  // namespace
}  // namespace cairn::scheduler
