#include "wire/state_delta.h"

#include <algorithm>

#include "base/check.h"
#include "base/planted.h"
#include "wire/state_codec.h"

namespace cairn::wire {
namespace {

// Items of both are sorted by key(item). Calls changed(item) for what is new or other in `now`, gone(item)
// for what is only in `base`.
template <class Item, class Key, class Changed, class Gone>
void Compare(const std::vector<Item>& base, const std::vector<Item>& now, Key key, Changed changed,
             Gone gone) {
  auto old = base.begin();
  for (const Item& item : now) {
    for (; old != base.end() && key(*old) < key(item); ++old) gone(*old);
    if (old != base.end() && key(*old) == key(item)) {
      if (!(*old == item)) changed(item);
      ++old;
    } else {
      changed(item);
    }
  }
  for (; old != base.end(); ++old) gone(*old);
}

template <class Item, class Key>
void Merge(std::vector<Item>& items, const std::vector<Item>& changed, const std::vector<uint32_t>& gone,
           Key key) {
  std::erase_if(
      items, [&](const Item& item) { return std::find(gone.begin(), gone.end(), key(item)) != gone.end(); });
  for (const Item& item : changed) {
    auto at = std::lower_bound(items.begin(), items.end(), key(item),
                               [&](const Item& have, uint32_t k) { return key(have) < k; });
    if (at != items.end() && key(*at) == key(item)) {
      *at = item;
    } else {
      items.insert(at, item);
    }
  }
}

uint32_t IndexOf(const ServerInfo& server) { return server.index; }
uint32_t RankOf(const WorkerInfo& worker) { return worker.rank.value; }
uint32_t IdOf(const TableInfo& table) { return table.id.value; }

}  // namespace

StateDelta Difference(const ClusterState& base, const ClusterState& now) {
  CAIRN_CHECK(base.slots.size() == now.slots.size());
  StateDelta delta;
  delta.base = base.version;
  ClusterState& c = delta.changed;
  c.cluster_id = now.cluster_id;
  c.term = now.term;
  c.version = now.version;
  c.phase = now.phase;
  c.failure = now.failure;
  c.expected_servers = now.expected_servers;
  c.expected_workers = now.expected_workers;
  c.next_incarnation = now.next_incarnation;
  c.view = now.view;
  c.pending_view = now.pending_view;
  c.views = now.views;
  c.next_table = now.next_table;
  c.done_ranks = now.done_ranks;
  c.replicas = now.replicas;
  c.min_in_sync = now.min_in_sync;
  c.failovers = now.failovers;
  Compare(
      base.servers, now.servers, IndexOf, [&](const auto& item) { c.servers.push_back(item); },
      [&](const auto& item) { delta.servers_gone.push_back(item.index); });
  Compare(
      base.workers, now.workers, RankOf, [&](const auto& item) { c.workers.push_back(item); },
      [&](const auto& item) { delta.workers_gone.push_back(item.rank.value); });
  Compare(
      base.tables, now.tables, IdOf, [&](const auto& item) { c.tables.push_back(item); },
      [&](const auto& item) { delta.tables_gone.push_back(item.id.value); });
  if (CAIRN_BUG(kGoneNotTold)) delta.servers_gone = delta.workers_gone = delta.tables_gone = {};
  for (uint32_t slot = 0; slot < now.slots.size(); ++slot) {
    if (base.slots[slot] == now.slots[slot]) continue;
    delta.slot_ids.push_back(slot);
    c.slots.push_back(now.slots[slot]);
  }
  return delta;
}

Result<ClusterState> Apply(const ClusterState& base, const StateDelta& delta) {
  const bool fits = base.version == delta.base || CAIRN_BUG(kWrongBase);
  if (!fits || base.cluster_id != delta.changed.cluster_id)
    return BadControl("a difference to a state that is not here");
  if (delta.slot_ids.size() != delta.changed.slots.size()) return BadControl("slots that are not named");
  ClusterState now = delta.changed;
  now.servers = base.servers;
  now.workers = base.workers;
  now.tables = base.tables;
  now.slots = base.slots;
  Merge(now.servers, delta.changed.servers, delta.servers_gone, IndexOf);
  Merge(now.workers, delta.changed.workers, delta.workers_gone, RankOf);
  Merge(now.tables, delta.changed.tables, delta.tables_gone, IdOf);
  for (size_t i = 0; i < delta.slot_ids.size(); ++i) {
    if (delta.slot_ids[i] >= now.slots.size()) return BadControl("a slot that is not there");
    now.slots[delta.slot_ids[i]] = delta.changed.slots[i];
  }
  if (Status bad = CheckState(now); !bad.ok()) return bad;
  return now;
}

}  // namespace cairn::wire
