#include "scheduler/core/view_reports.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "base/planted.h"
#include "scheduler/rules/tables.h"

namespace cairn::scheduler {
namespace {

// No round comes near this; a report beyond it is not from one of our servers.
constexpr uint64_t kMaxRound = uint64_t{1} << 62;

// A report has one entry for each sync table.
bool IsSane(const std::vector<wire::TableRound>& rounds) {
  return rounds.size() <= kMaxTables &&
         std::all_of(rounds.begin(), rounds.end(),
                     [](const wire::TableRound& r) { return r.round.value < kMaxRound; });
}

}  // namespace

bool ViewReports::Take(Incarnation server, const wire::Heartbeat& heartbeat) {
  Report& report = reports_[server];
  const bool newer =
      std::tie(heartbeat.hold_view, heartbeat.hold_version) > std::tie(report.hold_view, report.hold_version);
  if (!newer || !IsSane(heartbeat.open_rounds)) return false;
  report = {heartbeat.hold_view, heartbeat.hold_version, heartbeat.open_rounds};
  ++changes_;
  return true;
}

// A server that has become the primary of a slot since must report again, for that slot too.
std::vector<uint32_t> ViewReports::NotHolding(const wire::ClusterState& state) const {
  CAIRN_CHECK(state.pending_view != ViewNumber(0));
  std::map<uint32_t, StateVersion> newest;  // by server: since when it has all the slots of now
  for (const wire::SlotOwner& slot : state.slots)
    newest[slot.server] = std::max(newest[slot.server], slot.since);
  std::vector<uint32_t> servers;
  for (const wire::ServerInfo& server : state.servers) {
    const auto it = reports_.find(server.incarnation);
    const bool holds = it != reports_.end() && it->second.hold_view == state.pending_view &&
                       (it->second.hold_version >= newest[server.index] || CAIRN_BUG(kViewWithoutReport));
    if (!holds) servers.push_back(server.index);
  }
  return servers;
}

std::vector<wire::TableRound> ViewReports::OpenRounds(const wire::ClusterState& state) const {
  std::vector<wire::TableRound> rounds;
  for (const wire::ServerInfo& server : state.servers) {
    const auto it = reports_.find(server.incarnation);
    CAIRN_CHECK(it != reports_.end() && it->second.hold_view == state.pending_view);
    rounds.insert(rounds.end(), it->second.open_rounds.begin(), it->second.open_rounds.end());
  }
  return rounds;
}

}  // namespace cairn::scheduler
