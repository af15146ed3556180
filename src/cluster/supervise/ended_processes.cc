#include "cluster/supervise/ended_processes.h"

#include <limits>

namespace cairn::cluster {

void EndedProcesses::Add(const EndedProcess& process) {
  if (process.uid == 0 || words_.size() >= kMost) return;
  words_.try_emplace(process.uid, Word{process, std::numeric_limits<int64_t>::min()});
}

void EndedProcesses::AddLeft(uint64_t uid) {
  left_.insert(uid);
  if (scheduler_started_again_) Add({uid});
}

void EndedProcesses::OnSchedulerStartedAgain() {
  scheduler_started_again_ = true;
  for (const uint64_t uid : left_) Add({uid});
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
