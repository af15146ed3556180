// Nodes compare the states they have while they don't hear the scheduler (docs/internals/consistency.md, rule
// 55).
#pragma once

#include <optional>

#include "wire/cluster_state.h"
#include "wire/control.h"

namespace cairn::wire {

// What a node that has the state `ours` says to a StateAt: its own state where that is newer, a StateAt
// that asks for theirs where it is older, nothing where both have the same.
std::optional<ControlMessage> AnswerTo(const StateAt& theirs, const ClusterState& ours);

}  // namespace cairn::wire
