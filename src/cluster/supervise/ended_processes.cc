#include "cluster/supervise/ended_processes.h"

#include <limits>

namespace cairn::cluster {

void EndedProcesses::Add(const EndedProcess& process) {
  if (process.uid == 0 || words_.size() >= kMost) return;
  words_.try_emplace(process.uid, Word{process, std::numeric_limits<int64_t>::min()});
}

std::vector<EndedProcess> EndedProcesses::TakeDue(int64_t now_ms) {
  std::vector<EndedProcess> due;
  for (auto& [uid, word] : words_) {
    if (now_ms < word.next_ms) continue;
    due.push_back(word.process);
    word.next_ms = now_ms + again_ms_;
  }
  return due;
}

}  // namespace cairn::cluster
