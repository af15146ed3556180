// Processes of which the launcher knows that they have ended, and the scheduler perhaps not yet: it is told
// again and again until it has answered, since it may be away. No clock, no network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace cairn::cluster {

struct EndedProcess {
  uint64_t uid = 0;  // of its registration; 0: not known
  bool out_of_memory = false;
  bool operator==(const EndedProcess&) const = default;
};

class EndedProcesses {
 public:
  // `again_ms`: the time between two tries.
  explicit EndedProcesses(int64_t again_ms) : again_ms_(again_ms) {}

  // One that has registered with its uid, or was about to. Where that is not known nobody can be told.
  void Add(const EndedProcess& process);
  // One that ended well, after the scheduler had let it go. A scheduler that was started again would wait for
  // those that its predecessor let go: it is told of them too, also of those that go on the predecessor's
  // word later.
  void AddLeft(uint64_t uid);
  void OnSchedulerStartedAgain();
  // The scheduler has answered.
  void OnTold(uint64_t uid) { words_.erase(uid); }
  // Those of whom it is to be told now.
  std::vector<EndedProcess> TakeDue(int64_t now_ms);

 private:
  // More than a launcher starts while a scheduler is away. Beyond it nobody new is taken in: their silence
  // tells.
  static constexpr size_t kMost = 1024;
  const int64_t again_ms_;
  struct Word {
    EndedProcess process;
    int64_t next_ms = 0;  // when it is to be told
  };
  std::map<uint64_t, Word> words_;  // by uid
  std::set<uint64_t> left_;
  bool scheduler_started_again_ = false;
};

}  // namespace cairn::cluster
