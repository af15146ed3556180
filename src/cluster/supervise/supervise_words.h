// For the supervisor's tests: nodes, ends and actions in few words.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "cluster/supervise/supervise.h"

namespace cairn::cluster {

using Actions = std::vector<SuperviseAction>;

inline const NodeName kScheduler{wire::Role::kScheduler, 0};
inline NodeName Server(uint32_t index) { return {wire::Role::kServer, index}; }
inline NodeName Worker(uint32_t rank) { return {wire::Role::kWorker, rank}; }
inline const ProcessEnd kClean{};
inline const ProcessEnd kKilled{.signal = SIGKILL};

// "start server 0; terminate worker 1; give up 2"; what is said is left out.
inline std::string Show(const Actions& actions) {
  std::string out;
  const auto add = [&out](const std::string& text) { out += (out.empty() ? "" : "; ") + text; };
  for (const SuperviseAction& action : actions) {
    switch (action.kind) {
      case SuperviseAction::Kind::kStart: add("start " + ToString(action.node)); break;
      case SuperviseAction::Kind::kInterrupt: add("interrupt " + ToString(action.node)); break;
      case SuperviseAction::Kind::kTerminate: add("terminate " + ToString(action.node)); break;
      case SuperviseAction::Kind::kKill: add("kill " + ToString(action.node)); break;
      case SuperviseAction::Kind::kGiveUp: add("give up " + std::to_string(action.node.index)); break;
      case SuperviseAction::Kind::kEnded:
        add("ended " + std::to_string(action.ended.uid) +
            (action.ended.out_of_memory ? " out of memory" : ""));
        break;
      case SuperviseAction::Kind::kShowTail: add("tail " + ToString(action.node)); break;
      case SuperviseAction::Kind::kAbort: add("abort: " + action.text); break;
      case SuperviseAction::Kind::kAsk:  // a matter of when, not of what
      case SuperviseAction::Kind::kSay: break;
    }
  }
  return out;
}
inline std::string Said(const Actions& actions) {
  std::string out;
  for (const SuperviseAction& action : actions) {
    if (action.kind == SuperviseAction::Kind::kSay) out += action.text + "\n";
  }
  return out;
}

}  // namespace cairn::cluster
