#include "scheduler/core/presence.h"

#include <utility>

#include "scheduler/rules/user_text.h"

namespace cairn::scheduler {

void Presence::Expect(Incarnation id, int64_t now_us) {
  nodes_[id];
  hearing_.Expect(id, now_us);
}

void Presence::Hear(Incarnation id, bool same_host, int64_t now_us) {
  Node& node = nodes_[id];
  const int64_t isolated_us = hearing_.IsolatedUs(now_us);
  hearing_.Hear(id, same_host ? Hearing::Where::kThisHost : Hearing::Where::kElsewhere, now_us);
  if (isolated_us > 0 && !hearing_.isolated())
    log_("nodes are heard again: everybody gets " + Seconds(hearing_.GraceUs(isolated_us)) + " to come back");
  if (node.silent) ++changes_;
  node.silent = node.told_needed = false;
}

void Presence::Forget(Incarnation id) {
  nodes_.erase(id);
  hearing_.Forget(id);
}

void Presence::NoteOutOfMemory(Incarnation id, bool out_of_memory) {
  if (auto it = nodes_.find(id); it != nodes_.end()) it->second.out_of_memory = out_of_memory;
}

std::vector<Incarnation> Presence::FindSilent(int64_t now_us) {
  std::vector<Incarnation> newly;
  for (auto& [id, node] : nodes_) {
    const bool silent = hearing_.Overdue(id, now_us);
    if (silent == node.silent) continue;
    node.silent = silent;
    ++changes_;
    if (silent) newly.push_back(id);
  }
  return newly;
}

bool Presence::NoteNeeded(Incarnation id) {
  const auto it = nodes_.find(id);
  return it != nodes_.end() && !std::exchange(it->second.told_needed, true);
}

bool Presence::silent(Incarnation id) const {
  const auto it = nodes_.find(id);
  return it != nodes_.end() && it->second.silent;
}

bool Presence::out_of_memory(Incarnation id) const {
  const auto it = nodes_.find(id);
  return it != nodes_.end() && it->second.out_of_memory;
}

bool Presence::ServerHeardLately(const wire::ClusterState& state, uint32_t server, int64_t now_us) const {
  const wire::ServerInfo* info = state.FindServer(server);
  return info != nullptr && hearing_.Lately(info->incarnation, now_us);
}

std::vector<uint32_t> Presence::Suspects(const wire::ClusterState& state, int64_t now_us) const {
  std::vector<uint32_t> suspects;
  for (const wire::ServerInfo& server : state.servers)
    if (!ServerHeardLately(state, server.index, now_us)) suspects.push_back(server.index);
  return suspects;
}

}  // namespace cairn::scheduler
