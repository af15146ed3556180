#include "scheduler/placement/traffic.h"

#include <cstddef>

namespace cairn::scheduler {

TrafficSpread SpreadOf(const wire::ClusterState& state, const SlotTraffic& traffic) {
  std::vector<std::vector<double>> work;  // by server and thread
  size_t threads = 0;
  for (const wire::ServerInfo& server : state.servers) {
    if (server.index >= work.size()) work.resize(server.index + 1);
    if (server.leaving) continue;
    work[server.index].resize(server.threads);
    threads += server.threads;
  }
  double sum = 0;
  auto add = [&](uint32_t server, uint32_t thread, double more) {
    if (thread >= work[server].size()) return;  // it is leaving
    work[server][thread] += more;
    sum += more;
  };
  for (uint32_t slot = 0; slot < state.slots.size(); ++slot) {
    const wire::SlotOwner& owner = state.slots[slot];
    const double pushed = traffic.PushedAt(slot);
    add(owner.server, owner.thread, pushed + traffic.PulledAt(slot));
    for (const wire::Backup& backup : owner.backups) add(backup.server, backup.thread, pushed);
  }
  TrafficSpread spread;
  if (threads == 0) return spread;
  spread.mean = sum / static_cast<double>(threads);
  for (uint32_t server = 0; server < work.size(); ++server)
    for (uint32_t thread = 0; thread < work[server].size(); ++thread)
      if (work[server][thread] > spread.hottest) spread = {work[server][thread], spread.mean, server, thread};
  return spread;
}

}  // namespace cairn::scheduler
