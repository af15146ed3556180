// Differences of states: applied to what they were made from they give the new state, and nothing else.
#include "wire/state_delta.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "wire/control.h"
#include "wire/wire_samples.h"

namespace cairn::wire {
namespace {

ClusterState Base(Random& random) {
  ClusterState state;
  state.cluster_id = "delta";
  state.version = StateVersion{5};
  state.phase = Phase::kRunning;
  for (uint32_t i = 0; i < 4; ++i) state.servers.push_back({2 * i, Incarnation{i + 1}, {"h", 7}, 2, false});
  for (uint32_t s = 0; s < 16; ++s) {
    const auto server = static_cast<uint16_t>(2 * (random.Next() % 4));
    state.slots.push_back({server, 0, 1, StateVersion{1}, kNoServer, {}});
  }
  for (uint32_t r = 0; r < 5; ++r)
    state.workers.push_back({Rank{r}, Incarnation{10 + r}, ViewNumber{1}, {"w", 0}});
  state.next_incarnation = Incarnation{20};
  state.tables.push_back({TableId{1}, {}, ViewNumber{1}});
  return state;
}

ClusterState Changed(ClusterState state, Random& random) {
  state.version = state.version.Next();
  if (random.Next() % 2 == 0)
    state.workers.erase(state.workers.begin() + random.Next() % state.workers.size());
  if (random.Next() % 2 == 0) state.workers.push_back({Rank{40}, Incarnation{20}, ViewNumber{0}, {"w", 0}});
  if (random.Next() % 2 == 0) state.servers.push_back({9, Incarnation{21}, {"n", 8}, 1, false});
  if (random.Next() % 2 == 0) state.servers[0].leaving = true;
  if (random.Next() % 2 == 0) state.tables.clear();
  if (random.Next() % 2 == 0) state.tables.push_back({TableId{2}, {}, ViewNumber{2}});
  for (int n = static_cast<int>(random.Next() % 4); n > 0; --n) {
    SlotOwner& owner = state.slots[random.Next() % state.slots.size()];
    owner.epoch += 1;
    owner.server = 2;
    owner.backups = {{4, 1, random.Next() % 2 == 0, state.version}};
    owner.heir = owner.backups[0].in_sync ? 4 : kNoServer;
  }
  state.done_ranks.push_back(3);
  state.failovers += 1;
  state.pending_view = ViewNumber{random.Next() % 3};
  return state;
}

TEST(StateDelta, GivesTheNewStateOverTheWire) {
  BufferPool pool;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const ClusterState base = Base(random), now = Changed(base, random);
    const StateDelta delta = Difference(base, now);
    auto in = Parse(Flatten(*EncodeControl(delta, pool), pool).bytes(), kMaxBodyBytes, pool);
    ASSERT_TRUE(in.ok());
    auto decoded = DecodeControl(in->header, in->body());
    ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
    auto applied = Apply(base, std::get<StateDelta>(*decoded));
    ASSERT_TRUE(applied.ok()) << applied.status().ToString();
    EXPECT_EQ(*applied, now);
    EXPECT_LE(delta.changed.slots.size(), 3u);
  }
}

TEST(StateDelta, IsRefusedByWhoHasAnotherState) {
  Random random(1);
  const ClusterState base = Base(random);
  ClusterState now = Changed(base, random);
  const StateDelta delta = Difference(base, now);
  ClusterState older = base;
  older.version = StateVersion{4};
  EXPECT_FALSE(Apply(older, delta).ok());
  EXPECT_FALSE(Apply(now, delta).ok());
  ClusterState other = base;
  other.cluster_id = "another";
  EXPECT_FALSE(Apply(other, delta).ok());
}

TEST(StateDelta, WhatIsNotAStateIsRefused) {
  Random random(1);
  const ClusterState base = Base(random);
  const StateDelta good = Difference(base, Changed(base, random));
  const auto refused = [&](auto change) {
    StateDelta bad = good;
    change(bad);
    return !Apply(base, bad).ok();
  };
  EXPECT_TRUE(refused([](StateDelta& d) { d.servers_gone = {0, 2, 4, 6}; }));
  EXPECT_TRUE(refused([](StateDelta& d) { d.slot_ids.push_back(3); }));
  EXPECT_TRUE(refused([](StateDelta& d) {
    d.slot_ids = {99};
    d.changed.slots = {{0, 0, 1, StateVersion{1}, kNoServer, {}}};
  }));
  EXPECT_TRUE(refused([](StateDelta& d) {
    d.slot_ids = {3};
    d.changed.slots = {{5, 0, 1, StateVersion{1}, kNoServer, {}}};
  }));
}

}  // namespace
}  // namespace cairn::wire
