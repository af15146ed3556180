// What the decisions of `cairn run` go by: the user's options, and what the scheduler says of the job.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "cluster/supervise/process_end.h"
#include "cluster/supervise/restart_limit.h"

namespace cairn::cluster {

struct SuperviseOptions {
  uint32_t servers = 1;  // on this node, as on every other
  uint32_t workers = 1;
  uint32_t replicas = 1;                 // owners of a partition, until the scheduler has said how many
  RestartLimit max_restarts;             // of this launcher
  int64_t leave_grace_ms = 30'000;       // for servers and scheduler, once the workers have ended
  int64_t late_server_grace_ms = 2'000;  // for servers, once the scheduler has left too
  int64_t give_up_every_ms = 1'000;      // repeated, because the scheduler may be away; kEnded too
  int64_t stop_grace_ms = 5'000;         // between SIGTERM and SIGKILL
  int64_t interrupt_grace_ms = 10'000;   // between SIGINT and SIGTERM: time to save
  int64_t dismiss_grace_ms = 30'000;  // between SIGTERM and SIGKILL for a worker of which there are too many
  uint32_t nodes = 1;
  uint32_t node_rank = 0;
  int64_t join_grace_ms = 600'000;  // node_rank > 0: how long it waits for the scheduler
  // node_rank > 0: a scheduler silent for so long is gone. More than the time that the scheduler gives others
  // (its lost_after), unless it says another one.
  int64_t lost_grace_ms = 65'000;

  bool one_node() const { return nodes == 1; }
};

// Why a job was stopped that `cairn stop` has ended, and the exit code then: as after SIGTERM.
inline constexpr std::string_view kStoppedWords = "stopped by `cairn stop`";
inline constexpr int kStoppedCode = 143;

// What the scheduler says of the job.
struct JobSeen {
  int64_t asked_ms = 0;         // the answer is no older than this
  bool answered = false;        // the rest counts only if it is
  bool over = false;            // ended or failed
  std::string failure;          // of a failed one
  bool anybody_joined = false;  // some worker, ever
  std::set<uint32_t> given_up;  // ranks that were neither done nor are awaited any longer
  ServersSeen servers;
  int64_t lost_after_ms = 0;  // for so long the scheduler may be cut off without ending the job; 0: not said
  uint32_t replicas = 0;      // owners of a partition; 0: not said
  bool copied = false;        // every partition has more than one owner in sync, and all are heard
};

}  // namespace cairn::cluster
