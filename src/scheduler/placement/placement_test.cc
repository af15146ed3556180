// The balancer as a pure function (rule 46): with random clusters, sizes and events it never takes an
// owner away that is needed, comes to rest in a bounded number of steps, and ends in balance.
#include <gtest/gtest.h>

#include <algorithm>

#include "scheduler/placement/placement.h"
#include "scheduler/placement/placement_harness.h"
#include "scheduler/rules/durable.h"
#include "scheduler/rules/owners.h"

namespace cairn::scheduler {
namespace {

TEST(Placement, LeavesAFreshClusterAlone) {
  for (uint32_t servers : {1u, 2u, 3u, 5u, 8u})
    for (uint32_t replicas : {1u, 2u, 3u})
      for (uint32_t threads : {1u, 4u})
        for (uint32_t slots : {16u, 256u}) {
          Cluster c(1, servers, slots, replicas, threads);
          EXPECT_FALSE(Place(c.d, {}, {}).any())
              << servers << " servers, " << replicas << " replicas, " << slots << " slots";
        }
}

TEST(Placement, DoesNotMoveWhatCanNotBeBalanced) {
  Cluster c(1, 3, 16, 1);
  c.bytes.assign(16, 0);
  c.bytes[3] = 1 << 30;  // all in one slot
  EXPECT_LE(c.Rest(), 40);
  const auto before = c.d.state.slots;
  EXPECT_FALSE(c.Step(true));
  c.bytes[3] += 1 << 20;
  EXPECT_FALSE(c.Step(true)) << "the large slot does not wander";
  EXPECT_EQ(c.d.state.slots, before);
}

TEST(Placement, ScaleOutAndInEndsInBalance) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Cluster c(seed, 2, 256, static_cast<uint32_t>(1 + seed % 3), static_cast<uint32_t>(1 + seed % 2));
    c.Rest();
    c.copies = 0;
    c.Join(), c.Join();
    EXPECT_EQ(c.Rest() <= 400, true);
    c.ExpectInPlace(0.10);
    const uint32_t owners = 256 * WantedOwners(c.d.state);
    EXPECT_LE(c.copies, owners * 6 / 10) << "about half has to be copied";
    c.copies = 0;
    c.d.state.servers.back().leaving = true;
    EXPECT_LE(c.Rest(), 400);
    EXPECT_EQ(c.d.state.servers.size(), 3u) << "it has gone";
    c.ExpectInPlace(0.10);
    EXPECT_LE(c.copies, owners * 35 / 100) << "a quarter has to";
    const DurableState before = c.d;
    for (uint64_t& size : c.bytes) size += size / 50;  // 2 % more
    EXPECT_FALSE(c.Step(true)) << "small changes move nothing";
    EXPECT_EQ(c.d.state.slots, before.state.slots);
  }
}

TEST(Placement, DeathIsRepairedOverAllThatAreLeft) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Cluster c(seed, 5, 256, 2);
    c.Rest();
    c.copies = 0;
    const size_t lost = c.Owned(2);
    c.Kill(2);
    c.Rest();
    EXPECT_GE(c.copies, lost);
    EXPECT_LE(c.copies, lost + 30) << "only what was lost is copied, but for a few to even out";
    c.ExpectInPlace(0.10);
  }
}

TEST(Placement, SlowServersGetNoCopies) {
  Cluster c(3, 3, 64, 2);
  c.Kill(2);
  c.Join();  // index 2 again
  c.limits.avoid = {2};
  c.Rest();
  EXPECT_EQ(c.Owned(2), 0u);
  c.limits.avoid = {};
  c.Rest();
  c.ExpectInPlace(0.10);
}

TEST(Placement, NothingIsDroppedWhileThePrimaryIsSuspect) {
  Cluster c(3, 2, 16, 2);
  c.d.state.servers[1].leaving = true;
  c.limits.avoid = {0};
  EXPECT_FALSE(c.Step(true)) << "server 0 may be dead: what server 1 has could be all that is left";
  c.limits.avoid = {};
  EXPECT_TRUE(c.Step(true));
}

TEST(Placement, LastServersStayAndMinInSyncIsKept) {
  Cluster last(3, 2, 16, 2);
  for (wire::ServerInfo& server : last.d.state.servers) server.leaving = true;
  EXPECT_FALSE(last.Step(true));
  Cluster two(3, 2, 16, 2);
  two.d.state.min_in_sync = 2;
  two.d.state.servers[1].leaving = true;
  two.Rest();
  for (const wire::SlotOwner& owner : two.d.state.slots) EXPECT_EQ(InSyncOwners(owner), 2u);
  two.Join();
  two.Rest();
  EXPECT_EQ(two.d.state.FindServer(1), nullptr) << "with a third server it can go";
}

// As long as one is there, its slots have another owner than the one that would be left.
TEST(Placement, LeavingServersGoAsAWholeWhereOneOwnerWouldBeLeft) {
  for (uint32_t replicas : {2u, 3u}) {
    SCOPED_TRACE(replicas);
    Cluster c(replicas, 4, 64, 2);
    c.d.state.replicas = replicas;
    c.Rest();
    const std::vector<wire::SlotOwner> before = c.d.state.slots;
    for (uint32_t index : {1u, 2u, 3u}) c.d.state.servers[index].leaving = true;
    int steps = 0;
    while (c.d.state.servers.size() > 1) {
      ASSERT_TRUE(c.Step(true));
      ASSERT_LT(++steps, 500);
      for (const wire::ServerInfo& server : c.d.state.servers)
        for (size_t slot = 0; server.leaving && slot < before.size(); ++slot)
          if (before[slot].server == server.index ||
              before[slot].FindBackup(static_cast<uint16_t>(server.index))) {
            ASSERT_GE(InSyncOwners(c.d.state.slots[slot]), 2u) << "slot " << slot << " of " << server.index;
          }
    }
    c.Rest();
    for (const wire::SlotOwner& owner : c.d.state.slots) EXPECT_EQ(InSyncOwners(owner), 1u);
  }
}

TEST(Placement, ReplicasMayChange) {
  Cluster c(5, 4, 64, 1);
  c.d.state.replicas = 3;
  c.Rest();
  c.ExpectInPlace(0.10);
  c.d.state.replicas = 2;
  c.copies = 0;
  c.Rest();
  EXPECT_LE(c.copies, 20u);
  c.ExpectInPlace(0.10);
}

TEST(Placement, AnyEventsAtAnyMomentEndInBalance) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Cluster c(seed, static_cast<uint32_t>(1 + seed % 5), 128, static_cast<uint32_t>(1 + seed % 3));
    for (int i = 0; i < 60; ++i) {
      const uint64_t what = c.Below(12);
      if (what == 0 && c.d.state.servers.size() < 8) c.Join();
      if (what == 1) c.Kill(c.Any().index);
      if (what == 2 && StayingServers(c.d.state) > 1) c.Any().leaving = true;
      if (what == 3) c.Any().leaving = false;
      if (what == 4) c.bytes[c.Below(128)] = c.Below(1 << 20);
      c.limits.avoid.clear();
      if (what == 5) c.limits.avoid = {c.Any().index};
      c.Step(c.Below(4) == 0);
      if (::testing::Test::HasFailure()) return;
    }
    c.limits.avoid.clear();
    for (wire::ServerInfo& server : c.d.state.servers) server.leaving = false;
    c.Rest();
    c.ExpectInPlace(0.10);
    auto again = DecodeRecord(EncodeRecord(c.d));
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    if (::testing::Test::HasFailure()) return;
  }
}

// Every step is compared with the reference. Many servers of different weights share few slots, so that
// primaries are handed over in chains, and searches are in vain.
TEST(Placement, DecidesAsItsReferenceDoesInLargeClusters) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Cluster c(seed, static_cast<uint32_t>(20 + seed), static_cast<uint32_t>(100 + 37 * seed % 200),
              static_cast<uint32_t>(2 + seed % 2), static_cast<uint32_t>(1 + seed % 3));
    for (int i = 0; i < 50; ++i) {
      const uint64_t what = c.Below(8);
      c.set_threads(static_cast<uint32_t>(1 + c.Below(4)));
      if (what == 0)
        for (int n = 0; n < 4; ++n) c.Join();
      if (what == 1) c.Kill(c.Any().index);
      if (what == 2) c.Any().leaving = true;
      if (what == 3) c.bytes[c.Below(c.bytes.size())] = c.Below(1 << 22);
      c.limits.avoid.clear();
      if (what == 4) c.limits.avoid = {c.Any().index, c.Any().index};
      c.Step(c.Below(3) == 0);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(Placement, MoreMovesAreUnderWayWhereSlotsAreManyAndLight) {
  constexpr uint64_t kMiB = 1 << 20;
  for (size_t slots : {1, 256, 1024, 1279}) EXPECT_EQ(MovesAtATime(slots, SlotBytes(slots, 0)), 4u) << slots;
  EXPECT_EQ(MovesAtATime(4096, SlotBytes(4096, 0)), 16u);
  EXPECT_EQ(MovesAtATime(65536, SlotBytes(65536, 2000)), 256u);
  EXPECT_EQ(MovesAtATime(65536, {}), 4u) << "what they weigh is not known yet";
  EXPECT_EQ(MovesAtATime(65536, SlotBytes(65536, kMiB)), 64u) << "64 MiB";
  EXPECT_EQ(MovesAtATime(65536, SlotBytes(65536, 1024 * kMiB)), 4u);
  SlotBytes one_heavy(65536, kMiB / 4);
  one_heavy[7] = 1024 * kMiB;
  EXPECT_EQ(MovesAtATime(65536, one_heavy), 256u) << "four like it might be under way anyway";
  EXPECT_EQ(MovesAtATime(65536, SlotBytes(65536, UINT64_MAX - 1)), 4u);
}

// Each wave is a record of all slots, so the waves may not grow in number as the slots do.
TEST(Placement, LightSlotsAreAllCopiedInAFewHundredWavesHoweverManyThereAre) {
  for (const uint32_t slots : {1024, 4096, 16384}) {
    Cluster c(1, 2, slots, 2);
    c.bytes.assign(slots, 100);
    PlacementLimits limits;
    limits.copies_per_server = limits.handovers_per_server = MovesAtATime(slots, c.bytes);
    c.Kill(0);  // all of its slots go on at server 1
    c.Join();
    uint32_t waves = 0;
    for (; waves < 2000; ++waves) {
      c.d.state.version = c.d.state.version.Next();
      for (uint32_t slot = 0; slot < slots; ++slot) {
        for (const wire::Backup& backup : std::vector<wire::Backup>(c.d.state.slots[slot].backups))
          if (!backup.in_sync) MarkInSync(c.d, slot, backup.server);
        if (c.d.state.slots[slot].heir != wire::kNoServer) FinishHandover(c.d, slot);
      }
      if (!Place(c.d, c.bytes, limits).any()) break;
    }
    EXPECT_LE(waves, 256u + 16u) << slots << " slots";
    c.ExpectInPlace(0.05);
  }
}

TEST(Placement, CopiesLeftForetellsWhatWillBeCopied) {
  Cluster c(9, 2, 256, 2);
  c.Rest();
  c.Join();
  Place(c.d, c.bytes, c.limits);
  const uint32_t foretold = CopiesLeft(c.d, c.bytes, c.limits);
  c.copies = 0;
  c.Rest();
  EXPECT_GT(foretold, 100u);
  EXPECT_NEAR(c.copies, foretold, 0.1 * foretold);
  EXPECT_EQ(CopiesLeft(c.d, c.bytes, c.limits), 0u);
}

TEST(Placement, CopiesLeftOfManySlotsAreForetoldWithoutAPlan) {
  Cluster c(9, 2, 8192, 2);
  c.bytes.assign(8192, 100);
  EXPECT_EQ(CopiesLeft(c.d, c.bytes, c.limits), 0u);
  c.Join();
  EXPECT_NEAR(CopiesLeft(c.d, c.bytes, c.limits), 8192 * 2 / 3, 2);
  Place(c.d, c.bytes, c.limits);
  EXPECT_NEAR(CopiesLeft(c.d, c.bytes, c.limits), 8192 * 2 / 3, 8);
  c.Kill(0);
  EXPECT_NEAR(CopiesLeft(c.d, c.bytes, c.limits), 8192, 8);
}

}  // namespace
}  // namespace cairn::scheduler
