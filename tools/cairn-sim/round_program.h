// What all workers do alike in a round of a sync table, each for itself: a pure function of the
// table and the round, and in a round of two phases of the report.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "cairn/client.h"
#include "cairn/types.h"
#include "plan.h"
#include "wire/cluster_state.h"

namespace cairn::sim {

struct RoundProgram {
  Hyper hyper;
  PushOp op = PushOp::kUpdate;
  uint8_t column = 0;
  bool two_phase = false;
};
RoundProgram ProgramOf(const TablePlan& plan, const wire::TableInfo& info, Round round);

// The hyper-parameters that this table's optimizer knows, with the number of the step.
Hyper HyperFor(const TableSpec& spec, Hyper hyper, uint64_t step);

struct RoundDecision {
  bool skip = false;
  double scale = 1;
};
RoundDecision DecisionOf(const TablePlan& plan, Round round, const RoundInfo& report);

}  // namespace cairn::sim
