// Asks the scheduler how the job is doing, about once a second, on a thread of its own, so that
// a scheduler that is away never holds the launcher up.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "cairn/status.h"
#include "cluster/supervise/job_counts.h"
#include "wire/cluster_state.h"

namespace cairn::tool {

// The partitions by their owners. `total` 0: not said.
struct SlotCounts {
  uint32_t total = 0;
  uint32_t in_sync = 0;       // all of their owners are
  uint32_t copying = 0;       // to a further owner
  uint32_t handing_over = 0;  // from one primary to the next
  uint32_t single = 0;        // only one owner is in sync
  uint32_t blocked = 0;       // fewer owners are in sync than --min-in-sync asks for: requests wait
  uint32_t to_copy = 0;       // copies that are under way or still to come, with those done of them

  bool complete() const { return in_sync >= total; }
  bool quiet() const { return complete() && copying == 0 && handing_over == 0 && to_copy == 0; }
};

// What a launcher wants to know of the status. Everything is the peer's word.
struct ClusterSummary {
  std::string cluster_id, phase, failure, awaiting;
  uint32_t expected_servers = 0, expected_workers = 0;
  uint32_t servers = 0, workers = 0, done = 0;
  uint32_t servers_connected = 0, min_in_sync = 0;
  std::vector<uint32_t> done_ranks, live_ranks;
  std::set<uint32_t> given_up_ranks;
  int64_t lost_after_ms = 0;        // 0: not said
  uint64_t view = 0;                // 0: the cluster has never been complete
  uint64_t rounds = 0, pushes = 0;  // rounds: of the server that has closed the most
  struct Server {
    cluster::ServerCounts counts;
    std::string endpoint;
    bool leaving = false;
  };
  std::vector<Server> each;
  double pushes_per_s = 0, bytes_per_s = 0;
  bool sync_tables = false;
  uint32_t servers_wanted = 0, servers_leaving = 0, replicas = 0;  // 0: not said, or none
  uint64_t moves_done = 0, failovers = 0;
  SlotCounts slots;

  // Every partition has more than one owner in sync, and no more servers than so many are gone. One that has
  // just died is a closed connection first.
  bool copied_but_for(uint32_t gone) const {
    return phase == "running" && slots.total > 0 && slots.single == 0 && servers <= servers_connected + gone;
  }
  bool anybody_joined() const { return workers > 0 || done > 0 || view > 0; }
};
// An error if `json` is no status of a scheduler.
Result<ClusterSummary> ParseSummary(const std::string& json);
// One question, waiting for the answer.
Result<ClusterSummary> AskSummary(const wire::Endpoint& scheduler, int64_t timeout_ms);

class StatusPoller {
 public:
  struct Answer {
    int64_t asked_ms = 0;                   // monotonic; the state is no older than this
    std::optional<ClusterSummary> summary;  // nothing: it did not answer
  };

  StatusPoller() = default;
  ~StatusPoller();
  StatusPoller(const StatusPoller&) = delete;
  StatusPoller& operator=(const StatusPoller&) = delete;

  // Starts asking; signals must be blocked by now. Once.
  void Start(const wire::Endpoint& scheduler);
  bool started() const { return thread_.joinable(); }
  // Asks again now and does not wait for the second to pass.
  void Hurry();
  // The newest answer, once.
  std::optional<Answer> Take();

 private:
  void Loop();

  wire::Endpoint scheduler_;
  std::thread thread_;
  Mutex mutex_;
  Condition wake_;
  bool stop_ CAIRN_GUARDED_BY(mutex_) = false;
  bool hurry_ CAIRN_GUARDED_BY(mutex_) = false;
  std::optional<Answer> newest_ CAIRN_GUARDED_BY(mutex_);
};

int64_t MonotonicMs();

}  // namespace cairn::tool
