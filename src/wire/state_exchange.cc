#include "wire/state_exchange.h"

namespace cairn::wire {

std::optional<ControlMessage> AnswerTo(const StateAt& theirs, const ClusterState& ours) {
  if (theirs.version < ours.version) return StateMessage{ours};
  if (theirs.version > ours.version) return StateAt{ours.version};
  return std::nullopt;
}

}  // namespace cairn::wire
