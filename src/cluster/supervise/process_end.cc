#include "cluster/supervise/process_end.h"

#include <string.h>

#include "base/memory_limits.h"

namespace cairn::cluster {
namespace {

const char* WordFor(wire::Role role) {
  if (role == wire::Role::kScheduler) return "scheduler";
  return role == wire::Role::kServer ? "server" : "worker";
}

}  // namespace

std::string ToString(const NodeName& node) {
  if (node.role == wire::Role::kScheduler) return WordFor(node.role);
  return std::string(WordFor(node.role)) + " " + std::to_string(node.index);
}

std::string NamesOf(wire::Role role, const std::vector<uint32_t>& indices) {
  std::string text = std::string(WordFor(role)) + (indices.size() == 1 ? " " : "s ");
  for (size_t i = 0; i < indices.size(); ++i)
    text += (i == 0 ? "" : i + 1 == indices.size() ? " and " : ", ") + std::to_string(indices[i]);
  return text;
}

std::string ToString(const ProcessEnd& end) {
  if (end.signal == 0 && end.code == kOutOfMemoryCode)
    return "ran out of memory (exit code " + std::to_string(end.code) + ")";
  if (end.signal == 0) return "exited with code " + std::to_string(end.code);
  const char* name = sigdescr_np(end.signal);
  return "was killed by signal " + std::to_string(end.signal) +
         (name != nullptr ? " (" + std::string(name) + ")" : "");
}

}  // namespace cairn::cluster
