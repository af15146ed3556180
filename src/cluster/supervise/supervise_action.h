// What the decisions of `cairn run` ask of the launcher, and the list in which one event's actions are
// collected.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cluster/supervise/ended_processes.h"
#include "cluster/supervise/process_end.h"

namespace cairn::cluster {

struct SuperviseAction {
  enum class Kind {
    kStart,
    kInterrupt,  // SIGINT to its process group
    kTerminate,  // SIGTERM to its process group
    kKill,       // SIGKILL to its process group
    kGiveUp,     // tell the scheduler that this worker's rank does not come back
    kEnded,      // tell the scheduler that the process `ended` has ended (Supervisor::OnToldEnded)
    kAbort,      // tell the scheduler that the job has failed, and why: `text`
    kAsk,        // ask the scheduler now rather than in a while (Supervisor::OnSeen)
    kSay,        // `text`, to the user
    kShowTail,   // its last lines again, at the very end
  };
  Kind kind = Kind::kSay;
  NodeName node = {};
  std::string text = {};
  EndedProcess ended = {};
};

class ActionList {
 public:
  void Do(SuperviseAction::Kind kind, const NodeName& node) { actions_.push_back({kind, node}); }
  void Say(const std::string& text) {
    actions_.push_back({.kind = SuperviseAction::Kind::kSay, .text = text});
  }
  void Ask() { actions_.push_back({.kind = SuperviseAction::Kind::kAsk}); }
  void Abort(const std::string& why) {
    actions_.push_back({.kind = SuperviseAction::Kind::kAbort, .text = why});
  }
  void TellEnded(const EndedProcess& process) {
    actions_.push_back({.kind = SuperviseAction::Kind::kEnded, .ended = process});
  }
  std::vector<SuperviseAction> Take() { return std::exchange(actions_, {}); }

 private:
  std::vector<SuperviseAction> actions_;
};

}  // namespace cairn::cluster
