// Processes of which the launcher knows that they have ended, and the scheduler perhaps not yet: it is told
// again and again until it has answered, since it may be away. No clock, no network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace cairn::cluster {

class EndedProcesses {
 public:
  // `again_ms`: the time between two tries.
  explicit EndedProcesses(int64_t again_ms) : again_ms_(again_ms) {}

  // The process that has registered with this uid, or was about to; 0: not known, and nobody can be told.
  void Add(uint64_t uid);
  // The scheduler has answered.
  void OnTold(uint64_t uid) { next_ms_.erase(uid); }
  // Those of whom it is to be told now.
  std::vector<uint64_t> TakeDue(int64_t now_ms);

 private:
  // More than a launcher starts while a scheduler is away. Beyond it nobody new is taken in: their silence tells.
  static constexpr size_t kMost = 1024;
  const int64_t again_ms_;
  std::map<uint64_t, int64_t> next_ms_;  // uid → when it is to be told
};

}  // namespace cairn::cluster
