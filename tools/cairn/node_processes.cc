#include "node_processes.h"

#include <poll.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "cluster/supervise/first_failure.h"

namespace cairn::tool {

using cluster::NodeName;
using wire::Role;

NodeProcess& NodeProcesses::Of(const NodeName& name) {
  return nodes_.try_emplace(name, name, output_, guard_).first->second;
}

NodeProcess* NodeProcesses::Find(const NodeName& name) {
  const auto found = nodes_.find(name);
  return found == nodes_.end() ? nullptr : &found->second;
}

NodeProcesses::Waited NodeProcesses::ReadOutput(int other_fd, int timeout_ms) {
  const NodeProcess* words = scheduler();
  std::vector<pollfd> waits = {{other_fd, POLLIN, 0}, {words != nullptr ? words->words_fd() : -1, POLLIN, 0}};
  for (const auto& [name, node] : nodes_) waits.push_back({node.output_fd(), POLLIN, 0});
  if (poll(waits.data(), waits.size(), timeout_ms) <= 0) return {};
  size_t at = 2;
  for (auto& [name, node] : nodes_) {
    if (waits[at++].revents != 0) node.ReadOutput();
  }
  return {.scheduler = waits[1].revents != 0, .other = waits[0].revents != 0};
}

std::vector<NodeName> NodeProcesses::TakeEnded() {
  std::vector<std::pair<int64_t, NodeName>> ended;
  for (auto& [name, node] : nodes_)
    if (node.TakeEnd()) ended.emplace_back(node.traceback_ms() != 0 ? node.traceback_ms() : INT64_MAX, name);
  std::sort(ended.begin(), ended.end());
  std::vector<NodeName> names;
  names.reserve(ended.size());
  for (const auto& [when, name] : ended) names.push_back(name);
  return names;
}

void NodeProcesses::FlushLines() {
  for (auto& [name, node] : nodes_) node.FlushLines();
}

std::set<uint32_t> NodeProcesses::LeavingHere(const ClusterSummary& summary) {
  std::set<uint32_t> leaving;
  for (auto& [name, node] : nodes_) {
    if (name.role != Role::kServer || !node.running()) continue;
    node.ReadOwnWords();
    const ClusterSummary::Server* entry = node.EntryIn(summary);
    if (entry != nullptr && entry->leaving) leaving.insert(name.index);
  }
  return leaving;
}

const NodeProcess* NodeProcesses::FailedBefore(const NodeName& told) const {
  std::vector<const NodeProcess*> processes;
  std::vector<cluster::FailedWorker> failed;
  for (const auto& [name, node] : nodes_) {
    if (name == told || name.role != Role::kWorker || node.end().clean()) continue;
    processes.push_back(&node);
    failed.push_back({node.traceback_ms(), node.ending().traceback});
  }
  const size_t first = cluster::FirstToFail(nodes_.at(told).traceback_ms(), failed);
  return first < failed.size() ? processes[first] : nullptr;
}

}  // namespace cairn::tool
