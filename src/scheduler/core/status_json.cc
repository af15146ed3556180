// What `cairn status` shows: the cluster as one JSON object.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "scheduler/core/core.h"

namespace cairn::scheduler {
namespace {

using Json = nlohmann::ordered_json;

const char* Word(wire::Phase phase) {
  switch (phase) {
    case wire::Phase::kForming: return "forming";
    case wire::Phase::kRunning: return "running";
    case wire::Phase::kEnded: return "ended";
    case wire::Phase::kFailed: return "failed";
  }
  return "unknown";
}

double Rounded(double value) { return std::round(value * 1000.0) / 1000.0; }

Json StatsJson(const wire::NodeStats& s) {
  return {{"pushes", s.pushes},
          {"pulls", s.pulls},
          {"rounds", s.rounds},
          {"bytes_in", s.bytes_in},
          {"bytes_out", s.bytes_out},
          {"rows", s.rows},
          {"memory_bytes", s.memory_bytes},
          {"memory_left_bytes", s.memory.kind == MemoryKind::kUnknown ? Json() : Json(s.memory.bytes)},
          {"connections", s.connections},
          {"round_trips", s.round_trips},
          {"replicated_bytes", s.replicated_bytes}};
}

Json TableJson(const wire::TableInfo& table) {
  const TableSpec& spec = table.spec;
  const bool dense = spec.kind == TableKind::kDense;
  Json json = {{"id", table.id.value},
               {"name", spec.name},
               {"kind", dense ? "dense" : "sparse"},
               {"element", spec.element == ElementType::kFloat32 ? "float32" : "int64"},
               {"mode", spec.mode == Mode::kSync ? "sync" : "async"},
               {"optimizer", OptimizerText(spec.optimizer)}};
  if (dense)
    json["size"] = spec.size;
  else
    json["dim"] = spec.dim;
  return json;
}

// "0-15, 20"
std::string Ranges(const std::vector<uint32_t>& slots) {
  std::string text;
  for (size_t i = 0; i < slots.size();) {
    size_t last = i;
    while (last + 1 < slots.size() && slots[last + 1] == slots[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += std::to_string(slots[i]);
    if (last > i) text += "-" + std::to_string(slots[last]);
    i = last + 1;
  }
  return text;
}

// What one server owns.
struct Owned {
  std::vector<uint32_t> primaries, backups, copying;
  uint64_t bytes = 0;
  // "primary 0-15; backup 16-31; copying 40"
  std::string Text() const {
    std::string text;
    auto add = [&](const char* word, const std::vector<uint32_t>& slots) {
      if (!slots.empty()) text += (text.empty() ? "" : "; ") + std::string(word) + " " + Ranges(slots);
    };
    add("primary", primaries);
    add("backup", backups);
    add("copying", copying);
    return text;
  }
};

std::map<uint32_t, Owned> OwnedByServer(const wire::ClusterState& s, const std::vector<uint64_t>& bytes) {
  std::map<uint32_t, Owned> owned;
  for (uint32_t slot = 0; slot < s.slots.size(); ++slot) {
    const uint64_t size = slot < bytes.size() && bytes[slot] != UINT64_MAX ? bytes[slot] : 0;
    Owned& primary = owned[s.slots[slot].server];
    primary.primaries.push_back(slot);
    primary.bytes += size;
    for (const wire::Backup& backup : s.slots[slot].backups) {
      Owned& server = owned[backup.server];
      (backup.in_sync ? server.backups : server.copying).push_back(slot);
      if (backup.in_sync) server.bytes += size;
    }
  }
  return owned;
}

Json SlotsJson(const wire::ClusterState& s, uint32_t total) {
  uint32_t in_sync = 0, settled = 0, copying = 0, handing_over = 0, single = 0, blocked = 0;
  for (const wire::SlotOwner& owner : s.slots) {
    const uint32_t have = InSyncOwners(owner);
    const bool all = have == owner.backups.size() + 1;
    in_sync += all && have >= s.replicas ? 1 : 0;
    settled += all && have >= WantedOwners(s) ? 1 : 0;  // as many as there are servers for
    copying += have < owner.backups.size() + 1 ? 1 : 0;
    handing_over += owner.heir != wire::kNoServer ? 1 : 0;
    single += have == 1 ? 1 : 0;
    blocked += have < s.min_in_sync ? 1 : 0;  // requests to it wait
  }
  return {{"total", total},
          {"in_sync", in_sync},
          {"settled", settled},
          {"copying", copying},
          {"handing_over", handing_over},
          {"single", single},
          {"blocked", blocked}};
}

constexpr size_t kHotRowsShown = 10;  // of a table

double WorkOf(const Owned& owned, const SlotTraffic& traffic) {
  double work = 0;
  for (uint32_t slot : owned.primaries)
    if (slot < traffic.pushed.size()) work += traffic.pushed[slot] + traffic.pulled[slot];
  for (const auto* backups : {&owned.backups, &owned.copying})
    for (uint32_t slot : *backups)
      if (slot < traffic.pushed.size()) work += traffic.pushed[slot];
  return work;
}

}  // namespace

// The rows of each table that are asked for most, with their share of all that is asked of it. Only a slot's
// primary counts: another owner may have been it a moment ago.
std::map<TableId, std::vector<SchedulerCore::HotRowShare>> SchedulerCore::HottestRows() const {
  std::map<TableId, double> totals;
  std::map<TableId, std::vector<HotRowShare>> rows;
  const auto slots = static_cast<uint32_t>(state().slots.size());
  if (slots == 0) return rows;
  for (const wire::ServerInfo& server : state().servers) {
    const Live* live = FindLive(server.incarnation);
    if (live == nullptr) continue;
    for (const wire::SampledTable& table : live->sampled)
      totals[table.table] += static_cast<double>(table.count);
    for (const wire::HotRow& row : live->hot_rows) {
      const uint32_t slot = wire::SlotOfKey(row.key, slots).value;
      if (state().slots[slot].server != server.index) continue;
      rows[row.table].push_back({row.key, static_cast<double>(row.count), slot, server.index});
    }
  }
  for (auto& [table, hottest] : rows) {
    std::sort(hottest.begin(), hottest.end(), [](const HotRowShare& a, const HotRowShare& b) {
      return a.share != b.share ? a.share > b.share : a.key < b.key;
    });
    if (hottest.size() > kHotRowsShown) hottest.resize(kHotRowsShown);
    const double total = totals[table];
    for (HotRowShare& row : hottest) row.share = total > 0 ? std::min(1.0, std::round(row.share / total * 1e5) / 1e5) : 0;
  }
  return rows;
}

std::vector<wire::StalledRound> SchedulerCore::StalledRounds(int64_t now_us) const {
  std::vector<wire::StalledRound> rounds;
  for (const wire::ServerInfo& server : state().servers) {
    const Live* live = FindLive(server.incarnation);
    if (live == nullptr) continue;
    for (wire::StalledRound round : live->stalled) {
      const int64_t waited_ms = round.waited_ms + (now_us - live->stalled_us) / 1000;
      round.waited_ms = static_cast<uint32_t>(std::min<int64_t>(waited_ms, UINT32_MAX));
      if (state().FindTable(round.table) != nullptr) wire::AddStalled(rounds, std::move(round));
    }
  }
  return rounds;
}

std::string SchedulerCore::StatusJson(int64_t now_us) {
  const wire::ClusterState& s = state();
  static const Live kNobody;
  auto live_of = [&](Incarnation incarnation) -> const Live& {
    const Live* live = FindLive(incarnation);
    return live != nullptr ? *live : kNobody;
  };
  auto since_heard = [&](Incarnation incarnation) -> Json {
    if (!live_of(incarnation).heard) return nullptr;
    return Rounded(static_cast<double>(hearing_.SilenceUs(incarnation, now_us)) * 1e-6);
  };
  std::map<uint32_t, Owned> owned = OwnedByServer(s, slot_bytes_);
  const bool copying = CopyingSlots(s) > 0;
  const uint32_t left = copying ? CopiesLeft(durable_, KnownBytes(), Limits(now_us)) : 0;
  const uint32_t to_copy = copying ? copies_done_ + left : 0;  // as it looks now
  Json json = {{"cluster_id", s.cluster_id},
               {"phase", Word(s.phase)},
               {"failure", s.failure},
               {"term", s.term.value},
               {"version", s.version.value},
               {"view", s.view.value},
               {"pending_view", s.pending_view.value},
               {"expected_servers", s.expected_servers},
               {"expected_workers", s.expected_workers},
               {"servers_wanted", s.expected_servers},
               {"lost_after_ms", options_.lost_after_us / 1000},
               {"replicas", s.replicas},
               {"min_in_sync", s.min_in_sync},
               {"failovers", s.failovers},
               {"moves_done", durable_.moves_done},
               {"slots", SlotsJson(s, durable_.slot_count)},
               {"moves", {{"copied", copying ? copies_done_ : 0}, {"to_copy", to_copy}}},
               {"barrier_open", BarrierOpen()},
               {"awaiting", Awaiting()},
               {"done_ranks", s.done_ranks},
               {"given_up_ranks", durable_.given_up_ranks},
               {"missing_ranks", OpenRanks(durable_)}};
  Json& stalled = json["stalled_rounds"] = Json::array();
  for (const wire::StalledRound& round : StalledRounds(now_us))
    stalled.push_back({{"table", s.FindTable(round.table)->spec.name},
                       {"round", round.round.value},
                       {"seconds", Rounded(round.waited_ms * 1e-3)},
                       {"missing", round.missing},
                       {"missing_ranks", round.missing_ranks}});
  const SlotTraffic traffic = traffic_.Rates(now_us);
  const TrafficSpread spread = SpreadOf(s, traffic);
  json["traffic"] = {{"mean_per_thread", Rounded(spread.mean)},
                     {"hottest_of_mean", Rounded(spread.of_mean())},
                     {"hottest_server", spread.server},
                     {"hottest_thread", spread.thread},
                     {"moved_for_it", traffic_.moved()}};
  Json& servers = json["servers"] = Json::array();
  for (const wire::ServerInfo& server : s.servers) {
    const Live& live = live_of(server.incarnation);
    const Owned& mine = owned[server.index];
    servers.push_back({{"index", server.index},
                       {"incarnation", server.incarnation.value},
                       {"endpoint", ToString(server.endpoint)},
                       {"threads", server.threads},
                       {"slots", mine.primaries.size()},
                       {"primaries", mine.primaries.size()},
                       {"backups", mine.backups.size() + mine.copying.size()},
                       {"bytes", mine.bytes},
                       {"unconfirmed_bytes", live.stats.unconfirmed_bytes},
                       {"leaving", server.leaving},
                       {"owners", mine.Text()},
                       {"connected", live.conn != ConnId(0)},
                       {"lost", live.silent},
                       {"seconds_since_heard", since_heard(server.incarnation)},
                       {"version", live.version.value},
                       {"pushes_per_s", Rounded(live.pushes_per_s)},
                       {"pulls_per_s", Rounded(live.pulls_per_s)},
                       {"bytes_per_s", Rounded(live.bytes_per_s)},
                       {"work_per_s", Rounded(WorkOf(mine, traffic))},
                       {"stats", StatsJson(live.stats)}});
  }
  Json& workers = json["workers"] = Json::array();
  for (const wire::WorkerInfo& worker : s.workers) {
    const Live& live = live_of(worker.incarnation);
    workers.push_back({{"rank", worker.rank.value},
                       {"incarnation", worker.incarnation.value},
                       {"host", worker.endpoint.host},
                       {"join_view", worker.join_view.value},
                       {"connected", live.conn != ConnId(0)},
                       {"seconds_since_heard", since_heard(worker.incarnation)},
                       {"version", live.version.value},
                       {"barrier_count", live.barrier_count},
                       {"stats", StatsJson(live.stats)}});
  }
  Json& tables = json["tables"] = Json::array();
  std::map<TableId, std::vector<HotRowShare>> hottest = HottestRows();
  for (const wire::TableInfo& table : s.tables) {
    tables.push_back(TableJson(table));
    if (table.spec.kind != TableKind::kSparse) continue;
    Json& rows = tables.back()["hot_rows"] = Json::array();
    for (const HotRowShare& row : hottest[table.id])
      rows.push_back(
          {{"key", row.key}, {"share", row.share}, {"slot", row.slot}, {"server", row.server}});
  }
  // Names come from peers and need not be UTF-8.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace cairn::scheduler
