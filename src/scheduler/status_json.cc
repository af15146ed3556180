// What `cairn status` shows: the cluster as one JSON object.
#include <cmath>
#include <nlohmann/json.hpp>

#include "scheduler/core.h"

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
          {"connections", s.connections},
          {"round_trips", s.round_trips}};
}

Json TableJson(const wire::TableInfo& table) {
  const TableSpec& spec = table.spec;
  const bool dense = spec.kind == TableKind::kDense;
  Json json = {{"id", table.id.value},
               {"name", spec.name},
               {"kind", dense ? "dense" : "sparse"},
               {"element", spec.element == ElementType::kFloat32 ? "float32" : "int64"},
               {"mode", spec.mode == Mode::kSync ? "sync" : "async"},
               {"optimizer", OptimizerWord(spec.optimizer)}};
  if (dense)
    json["size"] = spec.size;
  else
    json["dim"] = spec.dim;
  return json;
}

}  // namespace

std::string SchedulerCore::StatusJson(int64_t now_us) {
  const wire::ClusterState& s = state();
  static const Live kNobody;
  auto live_of = [&](Incarnation incarnation) -> const Live& {
    const Live* live = FindLive(incarnation);
    return live != nullptr ? *live : kNobody;
  };
  auto since_heard = [&](const Live& live) -> Json {
    if (!live.heard) return nullptr;
    return Rounded(static_cast<double>(now_us - live.heard_us) * 1e-6);
  };
  std::vector<uint32_t> slots_of(s.servers.empty() ? 0 : s.servers.back().index + 1);
  for (const wire::SlotOwner& owner : s.slots)
    if (owner.server < slots_of.size()) ++slots_of[owner.server];

  Json json = {{"cluster_id", s.cluster_id},
               {"phase", Word(s.phase)},
               {"failure", s.failure},
               {"term", s.term.value},
               {"version", s.version.value},
               {"view", s.view.value},
               {"pending_view", s.pending_view.value},
               {"expected_servers", s.expected_servers},
               {"expected_workers", s.expected_workers},
               {"slots", durable_.slot_count},
               {"barrier_open", BarrierOpen()},
               {"awaiting", Awaiting()},
               {"done_ranks", s.done_ranks},
               {"given_up_ranks", durable_.given_up_ranks},
               {"missing_ranks", OpenRanks(durable_)}};
  Json& servers = json["servers"] = Json::array();
  for (const wire::ServerInfo& server : s.servers) {
    const Live& live = live_of(server.incarnation);
    servers.push_back({{"index", server.index},
                       {"incarnation", server.incarnation.value},
                       {"endpoint", ToString(server.endpoint)},
                       {"threads", server.threads},
                       {"slots", slots_of[server.index]},
                       {"connected", live.conn != ConnId(0)},
                       {"lost", live.silent},
                       {"seconds_since_heard", since_heard(live)},
                       {"version", live.version.value},
                       {"pushes_per_s", Rounded(live.pushes_per_s)},
                       {"pulls_per_s", Rounded(live.pulls_per_s)},
                       {"bytes_per_s", Rounded(live.bytes_per_s)},
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
                       {"seconds_since_heard", since_heard(live)},
                       {"version", live.version.value},
                       {"barrier_count", live.barrier_count},
                       {"stats", StatsJson(live.stats)}});
  }
  Json& tables = json["tables"] = Json::array();
  for (const wire::TableInfo& table : s.tables) tables.push_back(TableJson(table));
  // Names come from peers and need not be UTF-8.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace cairn::scheduler
