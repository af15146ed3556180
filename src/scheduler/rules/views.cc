#include "scheduler/rules/views.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/check.h"
#include "scheduler/rules/durable.h"
#include "scheduler/rules/job_end.h"
#include "scheduler/rules/owners.h"

namespace cairn::scheduler {

std::vector<uint32_t> MissingRanks(const DurableState& d) {
  std::vector<uint32_t> missing = OpenRanks(d);
  std::erase_if(missing, [&](uint32_t rank) { return rank >= d.state.expected_workers; });
  return missing;
}

std::vector<uint32_t> MissingServers(const DurableState& d) {
  std::vector<uint32_t> missing;
  auto server = d.state.servers.begin();
  for (uint32_t index = 0; index < d.state.expected_servers; ++index) {
    if (server != d.state.servers.end() && server->index == index)
      ++server;
    else
      missing.push_back(index);
  }
  return missing;
}

bool ReadyToForm(const DurableState& d) {
  return d.forming() && !d.state.workers.empty() && d.state.servers.size() == d.state.expected_servers &&
         MissingRanks(d).empty();
}

std::vector<wire::SlotOwner> MakeSlotMap(std::span<const wire::ServerInfo> servers, uint32_t slot_count,
                                         StateVersion since) {
  struct Shard {
    uint16_t thread, server;
  };
  std::vector<Shard> shards;
  uint32_t most_threads = 0;
  for (const wire::ServerInfo& server : servers) most_threads = std::max(most_threads, server.threads);
  for (uint32_t thread = 0; thread < most_threads; ++thread)
    for (const wire::ServerInfo& server : servers)
      if (thread < server.threads)
        shards.push_back({static_cast<uint16_t>(thread), static_cast<uint16_t>(server.index)});
  CAIRN_CHECK(!shards.empty());
  std::vector<wire::SlotOwner> slots(slot_count);
  // Those that get one more are the last ones: neighbours, so they are spread over the servers.
  const size_t each = slot_count / shards.size(), with_more = slot_count % shards.size();
  size_t slot = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const size_t end = slot + each + (i + with_more >= shards.size() ? 1 : 0);
    for (; slot < end; ++slot)
      slots[slot] = {shards[i].server, shards[i].thread, /*epoch=*/1, since, wire::kNoServer, {}};
  }
  return slots;
}

void SpreadBackups(wire::ClusterState& state) {
  const uint32_t backups = WantedOwners(state) - 1;
  if (backups == 0) return;
  const size_t n = state.servers.size();
  std::map<uint32_t, size_t> at;                  // server index → place in state.servers
  std::vector<std::vector<uint32_t>> threads(n);  // owned slots by server and thread
  std::vector<uint32_t> owned(n);
  std::map<size_t, std::vector<uint32_t>> shared;  // slots by primary and backup
  for (size_t i = 0; i < n; ++i) {
    at[state.servers[i].index] = i;
    threads[i].resize(state.servers[i].threads);
  }
  for (const wire::SlotOwner& slot : state.slots) {
    ++owned[at[slot.server]];
    ++threads[at[slot.server]][slot.thread];
  }
  for (wire::SlotOwner& slot : state.slots) {
    const size_t primary = at[slot.server];
    std::vector<uint32_t>& with = shared[primary];
    with.resize(n);
    while (slot.backups.size() < backups) {
      // Relative to the number of threads, which are what a server works with.
      auto key = [&](size_t i) {
        const double weight = state.servers[i].threads;
        return std::make_tuple(with[i] / weight, owned[i] / weight, (i + n - primary) % n);
      };
      size_t best = n;
      for (size_t i = 0; i < n; ++i) {
        const auto index = static_cast<uint16_t>(state.servers[i].index);
        if (i == primary || slot.FindBackup(index) != nullptr) continue;
        if (best == n || key(i) < key(best)) best = i;
      }
      auto least = std::min_element(threads[best].begin(), threads[best].end());
      slot.backups.push_back({static_cast<uint16_t>(state.servers[best].index),
                              static_cast<uint16_t>(least - threads[best].begin()), /*in_sync=*/true,
                              slot.since});
      ++*least;
      ++owned[best];
      ++with[best];
    }
  }
}

void Form(DurableState& d) {
  wire::ClusterState& state = d.state;
  CAIRN_CHECK(d.forming() && state.slots.empty() && state.view == ViewNumber(0));
  state.slots = MakeSlotMap(state.servers, d.slot_count, state.version);
  SpreadBackups(state);
  state.phase = wire::Phase::kRunning;
  state.view = ViewNumber(1);
  state.views = {wire::View{ViewNumber(1), {}}};
  for (wire::WorkerInfo& worker : state.workers) {
    worker.join_view = state.view;
    d.joined_ranks.insert(worker.rank.value);
  }
}

std::vector<uint32_t> WaitingRanks(const wire::ClusterState& state) {
  std::vector<uint32_t> ranks;
  for (const wire::WorkerInfo& worker : state.workers)
    if (worker.join_view == ViewNumber(0)) ranks.push_back(worker.rank.value);
  return ranks;
}

void BeginView(DurableState& d) {
  CAIRN_CHECK(d.running() && d.state.pending_view == ViewNumber(0));
  d.state.pending_view = d.state.view.Next();
}

// A pending view is always finished, even if everybody who waited for it has died: its number must
// not be used for a second hold, or reports of the first would be taken for the second's.
void FinishView(DurableState& d, std::span<const wire::TableRound> open_rounds) {
  wire::ClusterState& state = d.state;
  CAIRN_CHECK(d.running() && state.pending_view == state.view.Next());
  std::map<TableId, Round> first;
  for (const wire::TableRound& report : open_rounds)
    first[report.table] = std::max(first[report.table], report.round);
  wire::View view{state.pending_view, {}};
  for (const wire::TableInfo& table : state.tables)
    if (table.spec.mode == Mode::kSync) view.starts.push_back({table.id, first[table.id]});
  state.view = view.number;
  state.views.push_back(std::move(view));
  state.pending_view = ViewNumber(0);
  for (wire::WorkerInfo& worker : state.workers) {
    if (worker.join_view != ViewNumber(0)) continue;
    worker.join_view = state.view;
    d.joined_ranks.insert(worker.rank.value);
  }
}

void DropUnusedViews(wire::ClusterState& state) {
  std::erase_if(state.views, [&](const wire::View& view) {
    return view.number != state.view &&
           std::none_of(state.workers.begin(), state.workers.end(),
                        [&](const wire::WorkerInfo& worker) { return worker.join_view == view.number; });
  });
}

}  // namespace cairn::scheduler
