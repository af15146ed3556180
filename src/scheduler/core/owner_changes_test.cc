// Owners of slots in the second event after a first one: silences that meet, news that wait, servers that
// rest or go, and what is logged of it (rules 44 to 47).
#include <algorithm>
#include <nlohmann/json.hpp>

#include "scheduler/core/fake_cluster.h"
#include "scheduler/rules/owners.h"

namespace cairn::scheduler {
namespace {

struct ThreeOwners : ::testing::Test {
  FakeCluster c{FakeCluster::Options(3, 1)};
  FakeNode s0, s1, s2, w0;
  void Begin(uint32_t replicas = 2, uint32_t slots = 24) {
    c.options.replicas = replicas;
    c.options.slot_count = slots;
    c.Start();
    s0 = c.Server(9000), s1 = c.Server(9001), s2 = c.Server(9002), w0 = c.Worker(1);
    ASSERT_EQ(c.state().phase, wire::Phase::kRunning);
    for (FakeNode* node : {&s0, &s1, &s2, &w0}) c.Beat(*node);
  }
  size_t PrimaryOf(uint32_t server) const {
    return static_cast<size_t>(std::ranges::count_if(
        c.state().slots, [&](const wire::SlotOwner& owner) { return owner.server == server; }));
  }
  // The first slot of server 0 that server 1 is the backup of, and that it is too slow for it.
  wire::SlotNews Slow() {
    uint32_t slot = 0;
    while (c.state().slots[slot].server != 0 || c.state().slots[slot].FindBackup(1) == nullptr) ++slot;
    const wire::SlotOwner& owner = c.state().slots[slot];
    return {slot, wire::SlotNews::kSlow, 1, owner.epoch, owner.FindBackup(1)->added};
  }
  size_t CopyingTo(uint16_t server) const {
    return static_cast<size_t>(std::ranges::count_if(c.state().slots, [&](const wire::SlotOwner& owner) {
      const wire::Backup* backup = owner.FindBackup(server);
      return backup != nullptr && !backup->in_sync;
    }));
  }
};

TEST_F(ThreeOwners, SlotsOfADeadServerGoToNobodyWhoIsSilentToo) {
  Begin(3);
  c.Advance(2'000'000, {&s1, &s2, &w0});
  c.Advance(3'100'000, {&s2, &w0});  // server 1 is not overdue yet, but has not been heard lately
  ASSERT_EQ(c.state().FindServer(0), nullptr);
  ASSERT_NE(c.state().FindServer(1), nullptr);
  EXPECT_EQ(PrimaryOf(1), 8u);
  EXPECT_EQ(PrimaryOf(2), 16u);
}

TEST_F(ThreeOwners, ReplicasThatWouldHaveHelpedAreOneMore) {
  Begin();
  c.Advance(60'100'000, {&s0, &w0});
  ASSERT_EQ(c.state().phase, wire::Phase::kFailed);
  EXPECT_NE(c.state().failure.find("with --replicas 3 it survives 2 deaths at a time"), std::string::npos)
      << c.state().failure;
}

TEST_F(ThreeOwners, NewsThatWaitForTheirRecordAreNotTakenBackByALateHeartbeat) {
  Begin();
  while (CopyingSlots(c.state()) == 0) c.Advance(100'000, {&s0, &s2, &w0});  // server 1 dies
  FakeNode late = s0;
  late.beat.version = StateVersion(c.state().version.value - 1);
  c.BeatDone(s0);
  ASSERT_EQ(c.durable().moves_done, 0u) << "the last record was made a moment ago";
  c.Beat(late, /*takes_state=*/false);
  c.now_us += 100'000;
  c.scheduler->OnTick(c.now_us);
  EXPECT_EQ(c.durable().moves_done, 4u);
}

TEST_F(ThreeOwners, NewsThatAreNoLongerSaidAreForgotten) {
  Begin();
  while (CopyingSlots(c.state()) == 0) c.Advance(100'000, {&s0, &s2, &w0});
  c.BeatDone(s0);
  c.Beat(s0);  // the same state, and it takes the word back
  c.now_us += 100'000;
  c.scheduler->OnTick(c.now_us);
  EXPECT_EQ(c.durable().moves_done, 0u);
}

TEST_F(ThreeOwners, ASlowBackupRestsAndIsThenCopiedToAgain) {
  Begin();
  s0.beat.news = {Slow()};
  c.Advance(1'000'000, {&s0, &s1, &s2, &w0});
  s0.beat.news.clear();
  ASSERT_TRUE(c.Logged("server 1 is too slow as a backup: it is dropped from 1 partition"));
  c.AdvanceDone(12'000'000, {&s0, &s1}, {&w0});  // server 2 dies: nobody but server 1 could take its copies
  ASSERT_EQ(c.state().FindServer(2), nullptr);
  EXPECT_EQ(CopyingTo(1), 0u) << "it rests";
  const auto single = [](const wire::SlotOwner& owner) { return InSyncOwners(owner) == 1; };
  EXPECT_GT(std::ranges::count_if(c.state().slots, single), 0);
  c.AdvanceDone(25'000'000, {&s0, &s1}, {&w0});
  for (const wire::SlotOwner& slot : c.state().slots) EXPECT_EQ(InSyncOwners(slot), 2u);
}

TEST_F(ThreeOwners, ASlowBackupStaysWhileAViewIsPending) {
  Begin();
  FakeNode w1 = c.Worker(2);
  ASSERT_NE(c.state().pending_view, ViewNumber(0));
  const wire::SlotNews slow = Slow();
  s0.beat.news = {slow};
  for (int i = 0; i < 15; ++i) {
    c.now_us += 100'000;
    c.Beat(s0), c.Beat(w0), c.Beat(w1), c.Beat(s1, /*takes_state=*/false), c.Beat(s2, false);
    c.scheduler->OnTick(c.now_us);
  }
  ASSERT_NE(c.state().pending_view, ViewNumber(0));
  EXPECT_NE(c.state().slots[slow.slot].FindBackup(1), nullptr);
  c.Advance(1'000'000, {&s0, &s1, &s2, &w0, &w1});
  EXPECT_EQ(c.state().slots[slow.slot].FindBackup(1), nullptr);
}

TEST_F(ThreeOwners, TheEndOfAnAlarmIsSaidOnce) {
  Begin();
  c.Advance(5'100'000, {&s0, &s2, &w0});
  EXPECT_TRUE(c.Logged("since server 1 is lost; another copy is made"));
  c.AdvanceDone(5'000'000, {&s0, &s2}, {&w0});
  EXPECT_EQ(c.CountLogged("every partition has more than one owner in sync again"), 1u);
  FakeNode s3 = c.Server(9003);
  c.AdvanceDone(5'000'000, {&s0, &s2, &s3}, {&w0});
  EXPECT_GT(PrimaryOf(s3.rank), 0u);
  EXPECT_EQ(c.CountLogged("every partition has more than one owner in sync again"), 1u);
}

TEST_F(ThreeOwners, CopiesAreCountedAnewInEachWave) {
  Begin(2, 96);
  FakeNode s3 = c.Server(9003);
  c.AdvanceDone(15'000'000, {&s0, &s1, &s2, &s3}, {&w0});
  ASSERT_EQ(CopyingSlots(c.state()), 0u);
  ASSERT_GT(c.durable().moves_done, 40u);
  FakeNode s4 = c.Server(9004);
  c.AdvanceDone(400'000, {&s0, &s1, &s2, &s3, &s4}, {&w0});
  ASSERT_GT(CopyingSlots(c.state()), 0u);
  const auto status = nlohmann::json::parse(c.scheduler->StatusJson(c.now_us));
  EXPECT_GT(status["moves"]["copied"], 0);
  EXPECT_LT(status["moves"]["copied"], 30) << "at most four at a time to the new one";
}

TEST_F(ThreeOwners, TheNextLookIsSoonerWhileSlotsMove) {
  Begin();
  EXPECT_EQ(c.scheduler->next_tick_us(), 50'000);
  c.Advance(5'100'000, {&s0, &s2, &w0});
  ASSERT_GT(CopyingSlots(c.state()), 0u);
  EXPECT_EQ(c.scheduler->next_tick_us(), 2'500);
}

// A wave is a record of all slots: many light slots are copied in waves of more than a few.
TEST_F(ThreeOwners, ManyLightSlotsAreCopiedInLargeWaves) {
  Begin(2, 4096);
  c.bytes.assign(4096, 100);
  c.AdvanceDone(300'000, {&s0, &s1, &s2}, {&w0});
  c.AdvanceDone(4'900'000, {&s0, &s2}, {&w0});
  ASSERT_EQ(c.state().servers.size(), 3u) << "server 1 is not dead yet";
  size_t most = 0;
  const StateVersion before = c.state().version;
  for (int i = 0; i < 300 && (c.state().servers.size() == 3 || most == 0 || CopyingSlots(c.state()) > 0);
       ++i) {
    c.AdvanceDone(100'000, {&s0, &s2}, {&w0});
    most = std::max(most, CopyingSlots(c.state()));
  }
  EXPECT_EQ(most, 32u) << "16 each way; 4 each way up to 1,024 slots";
  EXPECT_TRUE(
      std::ranges::all_of(c.state().slots, [](const auto& owner) { return InSyncOwners(owner) == 2; }));
  EXPECT_LT(c.state().version.value - before.value, 200u) << "records, for 2,731 copies";
}

TEST_F(ThreeOwners, LoadsCountOnlyFromThePrimary) {
  Begin(1);
  s0.beat.loads = {{0, 1000, 0, 0, 0}, {23, 5000, 0, 0, 0}, {24, 7000, 0, 0, 0}};
  ASSERT_EQ(c.state().slots[0].server, 0);
  ASSERT_EQ(c.state().slots[23].server, 2);
  c.Beat(s0);
  const auto status = nlohmann::json::parse(c.scheduler->StatusJson(c.now_us));
  EXPECT_EQ(status["servers"][0]["bytes"], 1000);
  EXPECT_EQ(status["servers"][2]["bytes"], 0);
}

TEST_F(ThreeOwners, RuinOfASlotThatThereIsNotIsNone) {
  Begin(1, 16);
  s0.beat.news = {{16, wire::SlotNews::kNotWhole, 0, 1, StateVersion(0)}};
  c.Beat(s0);
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
}

TEST(SilentServer, ThatIsNeededIsLoggedInEachSilence) {
  FakeCluster c(FakeCluster::Options(2, 1));
  c.Start();
  FakeNode s0 = c.Server(9000), s1 = c.Server(9001), w0 = c.Worker(1);
  c.Advance(1'000'000, {&s0, &s1, &w0});
  for (size_t silence = 1; silence <= 2; ++silence) {
    c.Advance(8'000'000, {&s0, &w0});
    EXPECT_EQ(c.CountLogged("server 1 (10.0.1.1:9001) is not heard, but nobody else"), silence);
    c.Advance(1'000'000, {&s0, &s1, &w0});
  }
}

TEST(LastServer, AlarmSaysThatOneIsToBeStarted) {
  FakeCluster c(FakeCluster::Options(2, 1));
  c.options.replicas = 2;
  c.Start();
  FakeNode s0 = c.Server(9000), s1 = c.Server(9001), w0 = c.Worker(1);
  c.Advance(1'000'000, {&s0, &s1, &w0});
  c.Advance(5'100'000, {&s0, &w0});
  EXPECT_TRUE(c.Logged("since server 1 is lost; no server is there to take another copy: start one"));
}

TEST(LastServer, ThatWantsToLeaveIsStillWanted) {
  FakeCluster c(FakeCluster::Options(1, 1));
  c.Start();
  FakeNode s0 = c.Server(9000), w0 = c.Worker(1);
  s0.beat.leaving = true;
  c.Advance(1'000'000, {&s0, &w0});
  EXPECT_TRUE(c.state().FindServer(0)->leaving);
  EXPECT_EQ(c.state().expected_servers, 1u);
  c.Restart();
  EXPECT_EQ(c.state().expected_servers, 1u);
}

TEST(ServersOfDifferentSize, HaveBackupsByTheirThreads) {
  FakeCluster c(FakeCluster::Options(3, 1));
  c.options.replicas = 2;
  c.options.slot_count = 40;
  c.Start();
  (void)c.Server(9000, 1), (void)c.Server(9001, 1), (void)c.Server(9002, 3), (void)c.Worker(1);
  size_t at_1 = 0, at_2 = 0;
  for (const wire::SlotOwner& owner : c.state().slots) {
    if (owner.server != 0) continue;
    for (const wire::Backup& backup : owner.backups) {
      if (backup.in_sync) ++(backup.server == 1 ? at_1 : at_2);
    }
  }
  EXPECT_EQ(at_1, 2u);
  EXPECT_EQ(at_2, 6u);
}

TEST(ScaleBelowMinInSync, IsRefused) {
  FakeCluster c(FakeCluster::Options(3, 1));
  c.options.replicas = c.options.min_in_sync = 2;
  c.Start();
  for (uint16_t i = 0; i < 3; ++i) (void)c.Server(static_cast<uint16_t>(9000 + i));
  (void)c.Worker(1);
  const ConnId tool = c.NewConn();
  c.Tell(tool, wire::Scale{1, 1});
  ASSERT_TRUE(c.Last<wire::Refusal>(tool).has_value());
  EXPECT_EQ(c.Last<wire::Refusal>(tool)->code, Code::kInvalidArgument);
  EXPECT_EQ(c.state().expected_servers, 3u);
  c.Tell(tool, wire::Scale{2, 2});
  EXPECT_EQ(c.state().expected_servers, 2u);
}

}  // namespace
}  // namespace cairn::scheduler
