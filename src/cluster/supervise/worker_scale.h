// How many workers a job should have (`cairn scale --workers`), as one launcher sees it: which of its ranks
// are started, which are told to go, and which of those that end were told to. Ranks below the number
// wanted stay or come; those above go. On several machines each launcher sends its own away, and further
// ones are node 0's. No processes, no clock.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace cairn::cluster {

class WorkerScale {
 public:
  struct Share {
    uint32_t nodes = 1, node_rank = 0;
    uint32_t workers = 1;        // of each node, at the start
    int64_t leave_grace_ms = 0;  // between SIGTERM and SIGKILL
  };
  explicit WorkerScale(const Share& share);

  struct Change {
    std::vector<uint32_t> start, dismiss;
    bool any() const { return !start.empty() || !dismiss.empty(); }
  };
  // `running`: the ranks whose processes are here. The same number again changes nothing.
  Change Follow(uint32_t wanted, const std::set<uint32_t>& running, int64_t now_ms);
  bool IsDismissed(uint32_t rank) const { return dismissed_.contains(rank); }
  // One that was told to go has ended. True: it is wanted again by now, and should be started.
  bool OnDismissedEnd(uint32_t rank);
  // One that nobody told to go has ended, and is not started again.
  void OnEnd(uint32_t rank) { called_.erase(rank); }
  // Those that were told to go and have not gone in time, each once.
  std::vector<uint32_t> TakeLate(int64_t now_ms);

  uint32_t wanted() const { return wanted_; }  // in the whole job
  // Started because more were wanted, and not ended since. The scheduler may still have such a rank as done.
  const std::set<uint32_t>& called() const { return called_; }
  // One that was told to go is wanted again, and is started as soon as it has gone.
  bool has_one_to_call() const { return !dismissed_.empty() && dismissed_.begin()->first < wanted_; }
  const std::set<uint32_t>& ranks() const { return ranks_; }  // that this launcher has ever started
  uint32_t on_this_node() const { return static_cast<uint32_t>(ranks_.size()); }

 private:
  const Share share_;
  uint32_t wanted_;
  std::set<uint32_t> ranks_;
  std::map<uint32_t, int64_t> dismissed_;  // and still here; until when they have time
  std::set<uint32_t> gone_;                // were told to go, and went
  std::set<uint32_t> called_;
};

}  // namespace cairn::cluster
