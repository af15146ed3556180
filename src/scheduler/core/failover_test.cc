// Servers that die, are slow, differ, or come back, while every slot has two owners (rules 44, 46, 47, 50).
#include <algorithm>

#include "scheduler/core/fake_cluster.h"
#include "scheduler/rules/durable.h"
#include "scheduler/rules/owners.h"

namespace cairn::scheduler {
namespace {

using News = wire::SlotNews;

struct Owners : ::testing::Test {
  FakeCluster c{Options()};
  FakeNode s0, s1, s2, w0;
  static SchedulerOptions Options() {
    SchedulerOptions o = FakeCluster::Options(3, 1);
    o.slot_count = 24;
    o.replicas = 2;
    return o;
  }
  void SetUp() override {
    c.Start();
    s0 = c.Server(9000), s1 = c.Server(9001), s2 = c.Server(9002), w0 = c.Worker(1);
    ASSERT_EQ(c.state().phase, wire::Phase::kRunning);
    for (FakeNode* node : {&s0, &s1, &s2, &w0}) c.Beat(*node);
  }
  uint32_t SlotOf(uint32_t primary, uint32_t backup) {
    for (uint32_t slot = 0; slot < c.state().slots.size(); ++slot)
      if (c.state().slots[slot].server == primary &&
          c.state().slots[slot].FindBackup(static_cast<uint16_t>(backup)) != nullptr)
        return slot;
    ADD_FAILURE() << "no such slot";
    return 0;
  }
  News Of(uint32_t slot, News::Kind kind) {
    const wire::SlotOwner& owner = c.state().slots[slot];
    return {slot, kind, owner.backups[0].server, owner.epoch, owner.backups[0].added};
  }
  void Say(FakeNode& node, std::vector<News> news) {
    node.beat.news = std::move(news);
    c.Beat(node);
    node.beat.news.clear();
    c.Advance(100'000);
  }
  void SayTwice(FakeNode& node, std::vector<News> news) {
    Say(node, news);
    c.Advance(400'000);
    Say(node, news);
  }
  std::vector<DurableState> Records() {
    std::vector<DurableState> records;
    for (const auto& bytes : c.memory.records()) records.push_back(*DecodeRecord(bytes));
    return records;
  }
};

TEST_F(Owners, FailoverIsOneRecordAndTheJobGoesOn) {
  const wire::ClusterState before = c.state();
  c.Advance(4'800'000, {&s0, &s2, &w0});
  EXPECT_EQ(c.state(), before);
  c.Advance(300'000, {&s0, &s2, &w0});
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
  EXPECT_EQ(c.state().failovers, 8u);
  const std::vector<DurableState> records = Records();
  size_t changed = 0;
  for (size_t i = 1; i < records.size(); ++i) {
    if (records[i].state.FindServer(1) != nullptr || records[i - 1].state.FindServer(1) == nullptr) continue;
    if (records[i - 1].forming()) continue;
    ++changed;
    EXPECT_EQ(records[i].state.version, before.version.Next());
    for (size_t slot = 0; slot < 24; ++slot) {
      const wire::SlotOwner &was = before.slots[slot], &is = records[i].state.slots[slot];
      EXPECT_NE(is.server, 1);
      EXPECT_EQ(is.FindBackup(1), nullptr);
      EXPECT_EQ(is.epoch, was.server == 1 ? 2u : 1u);
      if (was.server == 1) {
        EXPECT_EQ(is.since, records[i].state.version);
      }
    }
  }
  EXPECT_EQ(changed, 1u);
  EXPECT_EQ(c.CountLogged("alarm:"), 1u) << "one line for the event, not for each slot";
  EXPECT_TRUE(c.Logged("alarm: 16 partitions have only one owner in sync now, since server 1 is lost"));
  c.Beat(s1);
  EXPECT_EQ(c.Last<wire::Refusal>(s1.conn)->code, Code::kRetired);
  c.Beat(w0);
  EXPECT_EQ(c.Last<wire::HeartbeatReply>(w0.conn)->awaiting,
            "waiting for 1 of 3 servers; 16 partitions have only one owner in sync");
  // Other copies are made, a few at a time, and then all is well.
  EXPECT_EQ(CopyingSlots(c.state()), 8u) << "four from each";
  c.AdvanceDone(2'000'000, {&s0, &s2}, {&w0});
  for (const wire::SlotOwner& slot : c.state().slots) EXPECT_EQ(InSyncOwners(slot), 2u);
  EXPECT_TRUE(c.Logged("every partition has more than one owner in sync again"));
  EXPECT_EQ(c.durable().moves_done, 16u);
}

TEST_F(Owners, NewsOfOneHeartbeatAndWhatFollowsAreOneRecord) {
  c.Advance(5'100'000, {&s0, &s2, &w0});
  c.Advance(1'000'000, {&s0, &s2, &w0});
  const size_t records = c.memory.records().size();
  c.BeatDone(s0);
  EXPECT_EQ(c.memory.records().size(), records + 1);
  EXPECT_EQ(c.durable().moves_done, 4u);
  EXPECT_EQ(CopyingSlots(c.state()), 8u) << "the next four have begun in the same record";
}

TEST_F(Owners, TwoSilentAtOnceAreAwaitedLonger) {
  c.Advance(8'000'000, {&s0, &w0});
  EXPECT_EQ(c.state().servers.size(), 3u) << "some partition has nobody else";
  EXPECT_TRUE(c.Logged("server 1 (10.0.1.1:9001) is not heard, but nobody else who is heard has partition"));
  EXPECT_EQ(c.CountLogged("gets up to 60.0 s to come back"), 2u);
  c.Beat(w0);
  EXPECT_NE(c.Last<wire::HeartbeatReply>(w0.conn)->awaiting.find("servers 1, 2 are not heard"),
            std::string::npos);
  // One is back, late: so may be the other, which gets one detection time more. Then it is not needed.
  c.Advance(4'900'000, {&s0, &s1, &w0});
  EXPECT_EQ(c.state().servers.size(), 3u);
  c.Advance(300'000, {&s0, &s1, &w0});
  EXPECT_EQ(c.state().servers.size(), 2u);
  EXPECT_NE(c.state().FindServer(1), nullptr);
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
}

TEST_F(Owners, TwoLostForGoodEndTheJobAfterLostAfter) {
  c.Advance(59'800'000, {&s0, &w0});
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
  c.Advance(300'000, {&s0, &w0});
  EXPECT_EQ(c.state().phase, wire::Phase::kFailed);
  EXPECT_NE(c.state().failure.find("no other owner of partition"), std::string::npos) << c.state().failure;
  EXPECT_NE(c.state().failure.find("was in sync"), std::string::npos) << c.state().failure;
}

// A copy that is not whole saves no slot: nobody is awaited longer for it.
TEST(CopyingServer, SilentBesideItsPrimaryIsNotNeeded) {
  SchedulerOptions options = FakeCluster::Options(2, 1);
  options.replicas = 2;
  FakeCluster c(options);
  c.Start();
  FakeNode s0 = c.Server(9000), s1 = c.Server(9001), w0 = c.Worker(1);
  c.Advance(100'000, {&s0, &s1, &w0});
  c.Advance(5'100'000, {&s0, &w0});
  ASSERT_EQ(c.state().servers.size(), 1u);
  FakeNode s2 = c.Server(9002), s3 = c.Server(9003);
  c.Advance(1'000'000, {&s0, &s2, &s3, &w0});
  const auto copied_to = [&](const FakeNode& node) {
    return std::ranges::count_if(c.state().slots, [&](const wire::SlotOwner& owner) {
      const wire::Backup* backup = owner.FindBackup(static_cast<uint16_t>(node.rank));
      return owner.server == s0.rank && backup != nullptr && !backup->in_sync;
    });
  };
  ASSERT_GT(copied_to(s2), 0);
  c.Advance(5'100'000, {&s3, &w0});
  EXPECT_EQ(c.state().FindServer(s2.rank), nullptr) << "it has nothing that anybody needs";
  ASSERT_NE(c.state().FindServer(s0.rank), nullptr) << "it has the only copies";
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
  c.AdvanceDone(5'000'000, {&s0, &s3}, {&w0});
  for (const wire::SlotOwner& slot : c.state().slots) EXPECT_EQ(InSyncOwners(slot), 2u);
}

// The same where copies of all slots are under way at once.
TEST(CopyingServer, IsNoOtherOwner) {
  SchedulerOptions options = FakeCluster::Options(2, 1);
  options.replicas = 2;
  options.slot_count = 2;
  FakeCluster c(options);
  c.Start();
  FakeNode s0 = c.Server(9000), s1 = c.Server(9001), w0 = c.Worker(1);
  c.Advance(100'000, {&s0, &s1, &w0});
  c.Advance(5'100'000, {&s0, &w0});
  FakeNode s2 = c.Server(9002);
  c.Advance(1'000'000, {&s0, &s2, &w0});
  for (const wire::SlotOwner& slot : c.state().slots) {
    ASSERT_EQ(slot.server, s0.rank);
    ASSERT_NE(slot.FindBackup(static_cast<uint16_t>(s2.rank)), nullptr);
    ASSERT_EQ(InSyncOwners(slot), 1u);
  }
  c.Advance(12'000'000, {&s2, &w0});
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning) << c.state().failure;
  EXPECT_NE(c.state().FindServer(s0.rank), nullptr) << "it has the only copies";
}

TEST_F(Owners, LoneOwnerThatIsSilentIsAwaitedAndNobodyStaleIsPromoted) {
  c.Advance(5'100'000, {&s0, &s2, &w0});  // server 1 dies; copies are under way, none is done
  ASSERT_EQ(c.state().servers.size(), 2u);
  const auto slots = c.state().slots;
  c.Advance(12'000'000, {&s2, &w0});  // the primary of half of them is silent
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
  EXPECT_EQ(c.state().slots, slots);
  c.Advance(1'000'000, {&s0, &s2, &w0});
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning) << "it came back";
  c.Advance(60'100'000, {&s2, &w0});
  EXPECT_EQ(c.state().phase, wire::Phase::kFailed);
  EXPECT_NE(c.state().failure.find("server 0 (10.0.1.1:9000) is lost: not heard for 60.0 s"),
            std::string::npos)
      << c.state().failure;
}

TEST_F(Owners, KnownEndpointRetiresTheOldServerAtOnce) {
  FakeNode fresh = s1;
  fresh.hello.uid = 77;
  const uint64_t version = c.state().version.value;
  fresh = c.Register(fresh);
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
  EXPECT_EQ(fresh.rank, 1u) << "the lowest free index";
  EXPECT_EQ(c.state().FindServer(1)->incarnation, fresh.incarnation);
  const std::vector<DurableState> records = Records();
  for (const DurableState& record : records) {
    if (record.state.version.value == version + 1) {
      EXPECT_EQ(record.state.FindServer(1), nullptr) << "out first";
    }
    if (record.state.version.value <= version || record.state.version.value > version + 2) continue;
    for (const wire::SlotOwner& slot : record.state.slots) {
      EXPECT_NE(slot.server, 1) << "the new one has nothing of the old one's";
      EXPECT_EQ(slot.FindBackup(1), nullptr);
    }
  }
  c.Beat(s1);
  EXPECT_EQ(c.Last<wire::Refusal>(s1.conn)->code, Code::kRetired);
  c.Tell(c.NewConn(), s1.hello);  // a late copy of its registration changes nothing
  EXPECT_EQ(c.state().FindServer(1)->incarnation, fresh.incarnation);
  c.AdvanceDone(5'000'000, {&s0, &fresh, &s2}, {&w0});
  size_t owned = 0;
  for (const wire::SlotOwner& slot : c.state().slots) {
    EXPECT_EQ(InSyncOwners(slot), 2u);
    owned += slot.server == 1 || slot.FindBackup(1) != nullptr ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(owned), 16, 1);
}

TEST_F(Owners, StaleNewsChangeNothing) {
  const uint32_t slot = SlotOf(0, 1);
  News slow = Of(slot, News::kSlow);
  const auto version = c.state().version;
  slow.epoch = 2;
  SayTwice(s0, {slow});
  slow.epoch = 1;
  SayTwice(s2, {slow});  // not the primary
  slow.added = StateVersion(slow.added.value + 1);
  SayTwice(s0, {slow});
  EXPECT_EQ(c.state().version, version);
  // A retired server says nothing any more.
  FakeNode fresh = s0;
  fresh.hello.uid = 78;
  slow = Of(slot, News::kSlow);
  fresh = c.Register(fresh);
  c.Advance(1'000'000, {&fresh, &s1, &s2, &w0});
  const auto after = c.state().slots;
  SayTwice(s0, {slow});
  EXPECT_EQ(c.state().slots, after);
}

TEST_F(Owners, SlowBackupIsDroppedLoudlyAndRests) {
  const uint32_t slot = SlotOf(0, 1), other = SlotOf(2, 1);
  SayTwice(s0, {Of(slot, News::kSlow)});
  EXPECT_EQ(c.state().slots[slot].FindBackup(1), nullptr);
  EXPECT_TRUE(c.Logged("alarm: server 1 is too slow as a backup: it is dropped from 1 partition"));
  EXPECT_TRUE(c.Logged("alarm: 1 partition has only one owner in sync now, since server 1 is too slow"));
  ASSERT_EQ(c.state().slots[slot].backups.size(), 1u);
  EXPECT_EQ(c.state().slots[slot].backups[0].server, 2) << "another one takes its place";
  EXPECT_FALSE(c.state().slots[slot].backups[0].in_sync);
  Say(s2, {Of(other, News::kDiverged)});
  EXPECT_TRUE(c.Logged("alarm: server 1 can't follow the primary any more in 1 partition"));
}

// A scheduler that was cut off gets the last words of a primary that has died meanwhile, all at once.
TEST_F(Owners, LastWordsOfADeadPrimaryDropNoBackup) {
  const uint32_t slot = SlotOf(0, 1);
  s0.beat.news = {Of(slot, News::kSlow)};
  c.Beat(s0), c.Beat(s0);
  c.Advance(2'400'000, {&s1, &s2, &w0});
  EXPECT_NE(c.state().slots[slot].FindBackup(1), nullptr);
  c.Advance(3'000'000, {&s1, &s2, &w0});
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
  EXPECT_EQ(c.state().slots[slot].server, 1) << "it has gone on where the backup is";
}

// The same with a word that was heard before the cut: what comes after a silence does not go on with it.
TEST_F(Owners, LastWordsOfADeadPrimaryDropNoBackupThoughItHadSaidSoBeforeTheCut) {
  const uint32_t slot = SlotOf(0, 1);
  s0.beat.news = {Of(slot, News::kSlow)};
  auto say_after = [&](int64_t us) {
    c.now_us += us;
    c.Beat(s0);
    c.scheduler->OnTick(c.now_us);
    return c.state().slots[slot].FindBackup(1) != nullptr;
  };
  EXPECT_TRUE(say_after(0));
  EXPECT_TRUE(say_after(2'100'000)) << "nobody was heard meanwhile";
  EXPECT_TRUE(say_after(1'000));
  EXPECT_FALSE(say_after(499'000)) << "it lives, and goes on saying so";
}

TEST_F(Owners, FailoverWhileAViewIsPendingAsksTheNewPrimaryAgain) {
  c.Tell(w0.conn, wire::CreateTable{1, w0.incarnation, DenseSync("w")});
  c.Beat(s0), c.Beat(s1), c.Beat(s2);
  const TableId table = c.Last<wire::TableReply>(w0.conn)->table;
  FakeNode w1 = c.Worker(2);
  ASSERT_EQ(c.state().pending_view, ViewNumber(2));
  c.Beat(s0, true, {{table, Round(3)}});
  c.Beat(s2, true, {{table, Round(3)}});
  auto go_on = [&] {  // heard, with what they reported before
    for (int i = 0; i < 52; ++i) {
      c.now_us += 100'000;
      c.Beat(s0, false), c.Beat(s2, false), c.Beat(w0), c.Beat(w1);
      c.scheduler->OnTick(c.now_us);
    }
  };
  go_on();
  ASSERT_EQ(c.state().FindServer(1), nullptr);
  EXPECT_EQ(c.state().pending_view, ViewNumber(2)) << "the slots of server 1 are reported by nobody";
  EXPECT_EQ(CopyingSlots(c.state()), 0u) << "while a view is pending only deaths change owners";
  c.Beat(s0, true, {{table, Round(5)}});
  EXPECT_EQ(c.state().pending_view, ViewNumber(2));
  EXPECT_EQ(c.Last<wire::HeartbeatReply>(s0.conn)->awaiting.find("servers 0, 2 have"), std::string::npos);
  c.Beat(s2, true, {{table, Round(4)}});
  ASSERT_EQ(c.state().view, ViewNumber(2));
  EXPECT_EQ(c.state().FindView(ViewNumber(2))->starts, (std::vector<wire::TableRound>{{table, Round(5)}}));
  c.Advance(100'000, {&s0, &s2, &w0, &w1});
  EXPECT_GT(CopyingSlots(c.state()), 0u);
}

TEST_F(Owners, BackupIsNotDroppedAsSlowWhileItsPrimaryIsSuspect) {
  const uint32_t slot = SlotOf(0, 1);
  FakeNode w1 = c.Worker(2);  // a view is pending: the news have to wait
  c.Beat(s0), c.Beat(s1);
  Say(s0, {Of(slot, News::kSlow)});
  for (int i = 0; i < 30; ++i) {  // and then the primary falls silent
    c.now_us += 100'000;
    c.Beat(s1, false), c.Beat(s2, false), c.Beat(w0), c.Beat(w1);
    c.scheduler->OnTick(c.now_us);
  }
  c.Beat(s2);
  ASSERT_EQ(c.state().view, ViewNumber(2));
  c.Advance(1'000'000, {&s1, &s2, &w0, &w1});
  ASSERT_NE(c.state().slots[slot].FindBackup(1), nullptr) << "it may be all that is left";
  c.Advance(200'000, {&s0, &s1, &s2, &w0, &w1});
  EXPECT_NE(c.state().slots[slot].FindBackup(1), nullptr) << "the primary is back, and no longer says so";
  SayTwice(s0, {Of(slot, News::kSlow)});
  c.scheduler->OnTick(c.now_us += 100'000);
  EXPECT_EQ(c.state().slots[slot].FindBackup(1), nullptr);
}

TEST_F(Owners, RestartedSchedulerMovesNothingBeforeEverybodyIsHeard) {
  c.Advance(5'100'000, {&s0, &s2, &w0});
  c.AdvanceDone(3'000'000, {&s0, &s2}, {&w0});
  c.bytes.assign(24, 1000);
  FakeNode s3 = c.Server(9003);
  c.Restart();
  const auto slots = c.state().slots;
  c.Advance(1'000'000, {&s0, &s2, &w0});
  EXPECT_EQ(c.state().slots, slots);
  c.Advance(200'000, {&s0, &s2, &s3, &w0});
  EXPECT_GT(CopyingSlots(c.state()), 0u);
}

TEST(MinInSync, SlowBackupThatIsNeededStaysAndTheJobWaits) {
  SchedulerOptions o = FakeCluster::Options(2, 1);
  o.replicas = 2;
  o.min_in_sync = 2;
  FakeCluster c(o);
  c.Start();
  FakeNode s0 = c.Server(9000), s1 = c.Server(9001), w0 = c.Worker(1);
  for (FakeNode* node : {&s0, &s1, &w0}) c.Beat(*node);
  const wire::SlotOwner& slot = c.state().slots[0];
  ASSERT_EQ(slot.server, 0);
  s0.beat.news = {{0, News::kSlow, 1, 1, slot.backups[0].added}};
  c.Advance(2'000'000, {&s0, &s1, &w0});
  EXPECT_NE(slot.FindBackup(1), nullptr);
  EXPECT_EQ(c.CountLogged("with --min-in-sync 2 it can't be dropped"), 1u);
  s0.beat.news.clear();
  c.Advance(5'100'000, {&s0, &w0});
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
  c.Beat(w0);
  EXPECT_NE(c.Last<wire::HeartbeatReply>(w0.conn)->awaiting.find(
                "requests to 16 partitions wait: fewer than 2 owners are in sync"),
            std::string::npos)
      << c.Last<wire::HeartbeatReply>(w0.conn)->awaiting;
  EXPECT_EQ(c.Last<wire::HeartbeatReply>(w0.conn)->blocked_slots, 16u);
  o.min_in_sync = 3;
  EXPECT_FALSE(Scheduler::Start(o, c.store, c.network, c.pool, 0, nullptr).ok());
}

TEST(OneReplica, LostServerEndsTheJobAndSaysWhatWouldHaveHelped) {
  FakeCluster c(FakeCluster::Options(2, 1));
  c.Start();
  FakeNode s0 = c.Server(9000), s1 = c.Server(9001), w0 = c.Worker(1);
  c.Advance(59'900'000, {&s0, &w0});
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning) << "it may only be cut off";
  c.Advance(200'000, {&s0, &w0});
  EXPECT_EQ(c.state().phase, wire::Phase::kFailed);
  EXPECT_NE(c.state().failure.find("partitions 8, 9, 10, 11, 12, 13, 14, 15 (8 of 16) had no other copy"),
            std::string::npos)
      << c.state().failure;
  EXPECT_NE(c.state().failure.find("with --replicas 2"), std::string::npos);
}

TEST(FormingJob, LostServerIsAwaitedAgain) {
  FakeCluster c(FakeCluster::Options(2, 1));
  c.Start();
  FakeNode s0 = c.Server(9000), w0 = c.Worker(1);
  c.Advance(5'100'000, {&w0});
  EXPECT_EQ(c.state().phase, wire::Phase::kForming);
  EXPECT_TRUE(c.state().servers.empty());
  FakeNode again = c.Server(9005), s1 = c.Server(9001);
  EXPECT_EQ(again.rank, 0u);
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
}

TEST(FormingJob, ServerMayLeaveAndIsReplaced) {
  FakeCluster c(FakeCluster::Options(2, 1));
  c.Start();
  FakeNode s0 = c.Server(9000), w0 = c.Worker(1);
  s0.beat.leaving = true;
  c.Beat(s0);
  EXPECT_TRUE(c.Last<wire::LeaveReply>(s0.conn).has_value());
  EXPECT_EQ(c.state().expected_servers, 2u);
  FakeNode again = c.Server(9005), s1 = c.Server(9001);
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
}

TEST(Automatic, TwoReplicasAsSoonAsThereAreTwoServers) {
  for (uint32_t servers : {1u, 2u, 3u}) {
    SchedulerOptions o = FakeCluster::Options(servers, 1);
    o.replicas = 0;
    FakeCluster c(o);
    c.Start();
    for (uint16_t i = 0; i < servers; ++i) (void)c.Server(static_cast<uint16_t>(9000 + i));
    (void)c.Worker(1);
    ASSERT_EQ(c.state().phase, wire::Phase::kRunning);
    EXPECT_EQ(c.state().replicas, std::min(2u, servers));
    for (const wire::SlotOwner& slot : c.state().slots) EXPECT_EQ(InSyncOwners(slot), std::min(2u, servers));
  }
}

// A primary that can't go on with a slot ends the job, if it is the one of now.
TEST(Ruin, EndsTheJobLoudly) {
  for (const auto kind : {wire::SlotNews::kNotWhole, wire::SlotNews::kSpent}) {
    FakeCluster c(FakeCluster::Options(2, 1));
    c.options.replicas = 2;
    c.Start();
    FakeNode s0 = c.Server(9000), s1 = c.Server(9001), w = c.Worker(1);
    for (FakeNode* node : {&s0, &s1, &w}) c.Beat(*node);
    uint32_t slot = 0;
    while (c.state().slots[slot].server != 1) ++slot;
    const uint64_t epoch = c.state().slots[slot].epoch;
    s1.beat.news = {{slot, kind, 1, epoch + 1, StateVersion(0)}};
    c.Beat(s1);
    s0.beat.news = {{slot, kind, 0, epoch, StateVersion(0)}};
    c.Beat(s0);
    EXPECT_EQ(c.state().phase, wire::Phase::kRunning)
        << "of another epoch, and of one that is not its primary";
    s1.beat.news = {{slot, kind, 1, epoch, StateVersion(0)}};
    c.Beat(s1);
    EXPECT_EQ(c.state().phase, wire::Phase::kFailed);
    const std::string words = kind == wire::SlotNews::kSpent ? "as many operations as can be counted"
                                                             : "whose copy of it is not whole";
    EXPECT_NE(c.state().failure.find("partition " + std::to_string(slot)), std::string::npos);
    EXPECT_NE(c.state().failure.find(words), std::string::npos) << c.state().failure;
  }
}

}  // namespace
}  // namespace cairn::scheduler
