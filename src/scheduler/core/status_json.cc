#include "scheduler/core/status_json.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "scheduler/placement/traffic.h"
#include "scheduler/rules/job_end.h"
#include "scheduler/rules/owners.h"
#include "scheduler/rules/table_spec.h"

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

std::map<uint32_t, Owned> OwnedByServer(const wire::ClusterState& s, const SlotSizes& sizes) {
  std::map<uint32_t, Owned> owned;
  for (uint32_t slot = 0; slot < s.slots.size(); ++slot) {
    const uint64_t size = sizes.Of(slot);
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
  return {{"total", total},     {"in_sync", in_sync},           {"settled", settled},
          {"copying", copying}, {"handing_over", handing_over}, {"single", single},
          {"blocked", blocked}};
}

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

std::string StatusJson(const StatusSources& from, int64_t now_us) {
  const wire::ClusterState& s = from.journal.state();
  const DurableState& durable = from.journal.durable();
  const Placer& placer = from.placer;
  auto connected = [&](Incarnation node) { return from.connections.Of(node) != ConnId(0); };
  auto since_heard = [&](Incarnation node) -> Json {
    if (!from.barriers.Heard(node)) return nullptr;
    return Rounded(static_cast<double>(from.presence.hearing().SilenceUs(node, now_us)) * 1e-6);
  };
  std::map<uint32_t, Owned> owned = OwnedByServer(s, placer.sizes());
  const bool copying = CopyingSlots(s) > 0;
  const uint32_t left = copying ? placer.CopiesLeft(now_us) : 0;
  const uint32_t to_copy = copying ? placer.copies_done() + left : 0;  // as it looks now
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
               {"lost_after_ms", from.lost_after_us / 1000},
               {"replicas", s.replicas},
               {"min_in_sync", s.min_in_sync},
               {"failovers", s.failovers},
               {"moves_done", durable.moves_done},
               {"slots", SlotsJson(s, durable.slot_count)},
               {"moves", {{"copied", copying ? placer.copies_done() : 0}, {"to_copy", to_copy}}},
               {"barrier_open", from.barriers.Open()},
               {"awaiting", from.awaiting.Text()},
               {"done_ranks", s.done_ranks},
               {"given_up_ranks", durable.given_up_ranks},
               {"missing_ranks", OpenRanks(durable)}};
  Json& stalled = json["stalled_rounds"] = Json::array();
  for (const wire::StalledRound& round : from.loads.StalledRounds(s, now_us))
    stalled.push_back({{"table", s.FindTable(round.table)->spec.name},
                       {"round", round.round.value},
                       {"seconds", Rounded(round.waited_ms * 1e-3)},
                       {"missing", round.missing},
                       {"missing_ranks", round.missing_ranks}});
  const SlotTraffic traffic = placer.traffic().Rates(now_us);
  const TrafficSpread spread = SpreadOf(s, traffic);
  json["traffic"] = {{"mean_per_thread", Rounded(spread.mean)},
                     {"hottest_of_mean", Rounded(spread.of_mean())},
                     {"hottest_server", spread.server},
                     {"hottest_thread", spread.thread},
                     {"moved_for_it", placer.traffic().moved()}};
  Json& servers = json["servers"] = Json::array();
  for (const wire::ServerInfo& server : s.servers) {
    const LoadReports::Load& load = from.loads.Of(server.incarnation);
    const Owned& mine = owned[server.index];
    servers.push_back({{"index", server.index},
                       {"incarnation", server.incarnation.value},
                       {"endpoint", ToString(server.endpoint)},
                       {"threads", server.threads},
                       {"slots", mine.primaries.size()},
                       {"primaries", mine.primaries.size()},
                       {"backups", mine.backups.size() + mine.copying.size()},
                       {"bytes", mine.bytes},
                       {"unconfirmed_bytes", load.stats.unconfirmed_bytes},
                       {"leaving", server.leaving},
                       {"wants_to_leave", from.news.WantsToLeave(server.incarnation)},
                       {"owners", mine.Text()},
                       {"connected", connected(server.incarnation)},
                       {"lost", from.presence.silent(server.incarnation)},
                       {"seconds_since_heard", since_heard(server.incarnation)},
                       {"version", from.teller.Holds(server.incarnation).value},
                       {"pushes_per_s", Rounded(load.pushes_per_s)},
                       {"pulls_per_s", Rounded(load.pulls_per_s)},
                       {"bytes_per_s", Rounded(load.bytes_per_s)},
                       {"work_per_s", Rounded(WorkOf(mine, traffic))},
                       {"stats", StatsJson(load.stats)}});
  }
  Json& workers = json["workers"] = Json::array();
  for (const wire::WorkerInfo& worker : s.workers) {
    workers.push_back({{"rank", worker.rank.value},
                       {"incarnation", worker.incarnation.value},
                       {"host", worker.endpoint.host},
                       {"join_view", worker.join_view.value},
                       {"connected", connected(worker.incarnation)},
                       {"seconds_since_heard", since_heard(worker.incarnation)},
                       {"version", from.teller.Holds(worker.incarnation).value},
                       {"barrier_count", from.barriers.Count(worker.incarnation)},
                       {"stats", StatsJson(from.loads.Of(worker.incarnation).stats)}});
    const std::vector<uint64_t>& staleness = from.loads.Of(worker.incarnation).staleness;
    if (!staleness.empty()) workers.back()["staleness"] = staleness;
  }
  Json& tables = json["tables"] = Json::array();
  std::map<TableId, std::vector<LoadReports::HotRowShare>> hottest = from.loads.HottestRows(s);
  for (const wire::TableInfo& table : s.tables) {
    tables.push_back(TableJson(table));
    if (table.spec.kind != TableKind::kSparse) continue;
    Json& rows = tables.back()["hot_rows"] = Json::array();
    for (const LoadReports::HotRowShare& row : hottest[table.id])
      rows.push_back({{"key", row.key}, {"share", row.share}, {"slot", row.slot}, {"server", row.server}});
  }
  // Names come from peers and need not be UTF-8.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace cairn::scheduler
