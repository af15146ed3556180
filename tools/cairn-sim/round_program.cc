#include "round_program.h"

#include <algorithm>
#include <cmath>

namespace cairn::sim {

namespace {

// Rounds come in groups with equal hyper-parameters.
constexpr uint64_t kGroup = 3;
constexpr uint64_t kOnePhaseEvery = 5;
constexpr double kMostNorm = 8;

uint8_t ColumnOf(const TableSpec& spec, uint64_t n) {
  if (n % 3 == 1) return kStepColumn;
  return n % 3 == 2 && StateColumns(spec.optimizer, spec.optimizer_flags) > 0 ? 1 : 0;
}

}  // namespace

Hyper HyperFor(const TableSpec& spec, Hyper hyper, uint64_t step) {
  using enum OptimizerKind;
  if (spec.kind != TableKind::kSparse) return hyper;
  hyper.step = step;
  if (spec.optimizer == kSparseAdam || spec.optimizer == kRowwiseAdagrad) hyper.weight_decay = 0;
  if (spec.optimizer == kSparseAdam) hyper.beta1 = 0.75, hyper.beta2 = 0.875;
  if (spec.optimizer == kFtrl) hyper.beta1 = 0.125, hyper.beta2 = 1;
  if (spec.optimizer == kAdagrad) hyper.dampening = 0.25;
  hyper.eps = 1e-3;
  return hyper;
}

RoundProgram ProgramOf(const TablePlan& plan, const wire::TableInfo& info, Round round) {
  RoundProgram program;
  program.hyper.lr = 0.125 * static_cast<double>(1 + round.value / kGroup % 4);
  program.hyper.weight_decay = info.id.value % 2 == 0 ? 0.0 : 0.25;
  if ((info.spec.optimizer_flags & kWithMomentum) != 0) program.hyper.beta1 = round.value % 7 == 6 ? 0 : 0.75;
  if (plan.assign_every > 0 && round.value % plan.assign_every == 0) {
    program.op = PushOp::kAssign;
    program.column = ColumnOf(info.spec, round.value / plan.assign_every);
    return program;
  }
  program.hyper = HyperFor(info.spec, program.hyper, round.value + 1);
  program.two_phase = plan.two_phase && round.value % kOnePhaseEvery != kOnePhaseEvery - 1;
  return program;
}

RoundDecision DecisionOf(const TablePlan& plan, Round round, const RoundInfo& report) {
  if (!report.finite) return {.skip = true};
  if (plan.skip_every > 0 && round.value % plan.skip_every == 0) return {.skip = true};
  if (!plan.clips) return {.scale = round.value % 4 == 0 ? 1.0 : 0.3 * static_cast<double>(round.value % 4)};
  return {.scale = std::min(1.0, kMostNorm / std::sqrt(report.sum_squares + 1e-6))};
}

}  // namespace cairn::sim
