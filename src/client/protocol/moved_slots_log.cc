#include "client/protocol/moved_slots_log.h"

#include <cstddef>
#include <map>

#include "base/check.h"

namespace cairn::client {
namespace {

// "server 0", "servers 0, 2"
std::string NamedServers(const std::set<uint32_t>& servers) {
  std::string text = servers.size() == 1 ? "server " : "servers ";
  bool first = true;
  for (uint32_t server : servers) {
    text += (first ? "" : ", ") + std::to_string(server);
    first = false;
  }
  return text;
}

}  // namespace

void MovedSlotsLog::OnNewMap(const wire::ClusterState& before, const wire::ClusterState& now,
                             int64_t now_us) {
  CAIRN_CHECK(before.slots.size() == now.slots.size());
  std::map<uint32_t, std::set<uint32_t>> heirs;  // of servers that are gone
  for (const wire::ServerInfo& server : before.servers) {
    const wire::ServerInfo* same = now.FindServer(server.index);
    if (same == nullptr || same->incarnation != server.incarnation) heirs[server.index];
  }
  for (size_t slot = 0; slot < now.slots.size(); ++slot) {
    const uint32_t from = before.slots[slot].server, to = now.slots[slot].server;
    if (auto it = heirs.find(from); it != heirs.end()) {
      it->second.insert(to);
    } else if (from != to) {
      ++moved_;
      moved_to_.insert(to);
    }
  }
  for (const auto& [server, to] : heirs) {
    log_("server " + std::to_string(server) + " is gone; " +
         (to.empty() ? "it had no partitions" : "its partitions are now on " + NamedServers(to)));
  }
  OnTick(now_us);
}

void MovedSlotsLog::OnTick(int64_t now_us) {
  if (moved_ == 0 || now_us < log_us_) return;
  log_us_ = now_us + every_us_;
  log_(std::to_string(moved_) + (moved_ == 1 ? " partition has moved to " : " partitions have moved to ") +
       NamedServers(moved_to_));
  moved_ = 0;
  moved_to_.clear();
}

}  // namespace cairn::client
