// The way of a job from its start to its end, and the deadlines on it:
//
//   starting → running → leaving (the workers have ended, servers and scheduler leave by themselves) → done
//   any of them → stopping the workers → stopping the rest → done
//
// Workers are stopped first, so that they meet no half-dead cluster. Nodes that are late are killed.
#pragma once

#include <cstdint>

#include "cluster/supervise/running_nodes.h"
#include "cluster/supervise/supervise_action.h"
#include "cluster/supervise/supervise_options.h"

namespace cairn::cluster {

class JobStages {
 public:
  enum class Stage { kStarting, kRunning, kLeaving, kStoppingWorkers, kStoppingRest, kDone };
  // The first signal to the workers, and the time that they have.
  enum class Farewell { kTerminate, kTerminateWithTimeToSave, kInterrupt };

  JobStages(const SuperviseOptions& options, RunningNodes& running, ActionList& actions)
      : options_(options), running_(running), actions_(actions) {}

  void Run() { stage_ = Stage::kRunning; }
  void StopWorkers(Farewell farewell, int64_t now_ms);
  void StopRest(int64_t now_ms);
  void KillAll(int64_t now_ms);
  // It stays until every server that it knows has confirmed the end. One that is still here came too late to
  // be known, and nobody will tell it.
  void OnSchedulerLeft(int64_t now_ms);
  // An answer of the scheduler's from while the job was leaving, and not over.
  void OnSeenLeaving(const JobSeen& seen);
  // Tells the nodes again, or kills them, that have not ended by the deadline.
  void StopLate(int64_t now_ms);
  // Moves on to the next stage when nothing holds it back.
  void Settle(int64_t now_ms);

  Stage stage() const { return stage_; }
  bool starting() const { return stage_ == Stage::kStarting; }
  bool running() const { return stage_ == Stage::kRunning; }
  bool leaving() const { return stage_ == Stage::kLeaving; }
  bool stopping() const { return stage_ == Stage::kStoppingWorkers || stage_ == Stage::kStoppingRest; }
  bool done() const { return stage_ == Stage::kDone; }
  // The workers have ended and none had ever joined.
  bool unused() const { return unused_; }
  // Some node had to be killed because it was late.
  bool stubborn() const { return stubborn_; }

 private:
  void KillLate(int64_t now_ms);

  const SuperviseOptions& options_;
  RunningNodes& running_;
  ActionList& actions_;
  Stage stage_ = Stage::kStarting;
  int64_t deadline_ms_ = 0;
  int64_t leaving_ms_ = 0;       // since when
  bool softly_ = false;          // told with SIGINT so far
  bool scheduler_left_ = false;  // after the workers, in good order
  bool unused_ = false, stubborn_ = false;
};

}  // namespace cairn::cluster
