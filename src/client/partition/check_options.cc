#include "client/partition/check_options.h"

#include <cmath>
#include <string>

#include "client/partition/table_facts.h"
#include "wire/data.h"

namespace cairn::client {
namespace {

Status CheckNumbers(const PartitionInput& input) {
  const auto of = [&] { return " of a push to " + Named(*input.table); };
  if (!(input.weight >= 0 && input.weight <= wire::kMaxWeight)) {
    return Wrong("the weight" + of() + " is " + std::to_string(input.weight) +
                 ": it must not be negative, NaN or above 1e30");
  }
  const struct {
    const char* name;
    double value;
  } hypers[] = {{"learning rate", input.hyper.lr},
                {"weight decay", input.hyper.weight_decay},
                {"beta1 or momentum", input.hyper.beta1},
                {"beta2 or alpha", input.hyper.beta2},
                {"eps", input.hyper.eps},
                {"dampening or lr_decay", input.hyper.dampening}};
  for (const auto& hyper : hypers) {
    if (!std::isfinite(hyper.value)) return Wrong(std::string("the ") + hyper.name + of() + " is not finite");
  }
  if (!std::isfinite(input.value_scale) || input.value_scale == 0)
    return Wrong("the value_scale" + of() + " is " + std::to_string(input.value_scale) +
                 ": it must be finite and not 0");
  if (!std::isfinite(input.scale))
    return Wrong("the scale of a decision on " + Named(*input.table) +
                 " is not finite: skip the round instead");
  return Status::Ok();
}

// 0 the values, then the optimizer's state; steps.
Status CheckColumn(const PartitionInput& input, uint8_t column, const char* verb) {
  const TableSpec& spec = input.table->spec;
  if (spec.element != ElementType::kFloat32)
    return Wrong(Named(*input.table) + " is of int64: " + verb + " is for tables of float32");
  const uint32_t states = StateColumns(spec.optimizer, spec.optimizer_flags);
  if (column <= states || column == kStepColumn) return Status::Ok();
  return Wrong(Named(*input.table) + " has no column " + std::to_string(column) + ": its optimizer keeps " +
               std::to_string(states) + " of them, beside the values (0) and the steps (" +
               std::to_string(kStepColumn) + ")");
}

// Rows are assigned by a numbered push in both modes.
Status CheckRowAssign(const PartitionInput& input, bool sync) {
  if (sync)
    return Wrong("an assign of rows of " + Named(*input.table) +
                 " is not a round: push it, and pull afterwards");
  return CheckColumn(input, input.column, "an assign");
}

Status CheckOp(const PartitionInput& input, bool sync) {
  if (input.op == PushOp::kUpdate) {
    if (input.column == 0) return Status::Ok();
    return Wrong("a push to " + Named(*input.table) + " names column " + std::to_string(input.column) +
                 ": only an assign has one (op = kAssign)");
  }
  if (input.table->spec.kind == TableKind::kSparse) return CheckRowAssign(input, sync);
  if (sync && input.op == PushOp::kAssignOnce) {
    return Wrong(Named(*input.table) +
                 " is synchronous: kAssignOnce is for asynchronous tables; here an assign is a "
                 "round, to which one worker gives the values and the others a Done of weight 0");
  }
  if (input.phase != RoundPhase::kWhole)
    return Wrong("a round of assigns of " + Named(*input.table) +
                 " has one phase: push instead of Contribute");
  return CheckColumn(input, input.column, "an assign");
}

Status CheckMask(const PartitionInput& input) {
  if (input.mask.empty()) return Status::Ok();
  const TableSpec& spec = input.table->spec;
  if (spec.kind != TableKind::kDense)
    return Wrong(Named(*input.table) + " is sparse: it has no segments, and no mask");
  const size_t segments = SegmentCount(spec), bytes = (segments + 7) / 8;
  if (input.mask.size() >= bytes) return Status::Ok();
  return Wrong(Named(*input.table) + " has " + std::to_string(segments) + " segments: a mask needs " +
               std::to_string(bytes) + " bytes, this one has " + std::to_string(input.mask.size()));
}

// What the table's optimizer can't work with. Who has joined agrees to what the others say.
Status CheckOptimizer(const PartitionInput& input) {
  if (input.op != PushOp::kUpdate || input.joined) return Status::Ok();
  const OptimizerKind kind = input.table->spec.optimizer;
  const Hyper& hyper = input.hyper;
  const auto push = [&] { return "a push to " + Named(*input.table); };
  if (kind == OptimizerKind::kFtrl && !(static_cast<float>(hyper.lr) > 0))
    return Wrong(push() + " has learning rate " + std::to_string(hyper.lr) +
                 ": FTRL divides by it, give one above 0");
  const bool negative = hyper.beta1 < 0 || hyper.beta2 < 0 || hyper.weight_decay < 0;
  if (kind == OptimizerKind::kFtrl && negative)
    return Wrong(push() + " has a negative l1, l2 or beta: FTRL needs them to be at least 0");
  const bool adam = kind == OptimizerKind::kSparseAdam;
  if ((adam || kind == OptimizerKind::kRowwiseAdagrad) && hyper.weight_decay != 0)
    return Wrong(push() + " has weight decay " + std::to_string(hyper.weight_decay) + ": " +
                 (adam ? "SparseAdam" : "row-wise Adagrad") + " has none, leave it at 0");
  // A slot sees only the pushes that touch it, so it can't count.
  if (adam && hyper.step == 0 && !input.keys.empty())
    return Wrong(push() + " has step 0: SparseAdam's correction needs the number of the step, " +
                 "counted from 1");
  return Status::Ok();
}

Status CheckAsync(const PartitionInput& input) {
  const char* what = input.joined                            ? "joined"
                     : input.value_scale != 1.0              ? "value_scale"
                     : input.weight != 1.0 || input.weighted ? "weight"
                                                             : nullptr;
  if (what == nullptr) return Status::Ok();
  if (input.table->spec.mode == Mode::kSync)
    return Wrong("this assign of " + Named(*input.table) + " is not a round: leave " + what + " out");
  return Wrong(Named(*input.table) + " is asynchronous: " + what + " is for rounds of synchronous tables");
}

Status CheckPhase(const PartitionInput& input) {
  if (input.phase != RoundPhase::kContribute && input.not_finite)
    return Wrong("not_finite is said in Contribute (" + Named(*input.table) + ")");
  if (input.phase != RoundPhase::kDecide && (input.skip || input.scale != 1.0))
    return Wrong("skip and scale are said in Decide (" + Named(*input.table) + ")");
  if (input.value_scale != 1.0 && input.table->spec.element != ElementType::kFloat32)
    return Wrong(Named(*input.table) + " is of int64: value_scale is for float32");
  return Status::Ok();
}

}  // namespace

Status CheckPushOptions(const PartitionInput& input, bool sync) {
  if (Status s = CheckNumbers(input); !s.ok()) return s;
  if (Status s = CheckPhase(input); !s.ok()) return s;
  if (Status s = CheckOp(input, sync); !s.ok()) return s;
  if (Status s = CheckMask(input); !s.ok()) return s;
  if (Status s = CheckOptimizer(input); !s.ok()) return s;
  return sync ? Status::Ok() : CheckAsync(input);
}

Status CheckPullOptions(const PartitionInput& input) {
  const bool sync = input.table->spec.mode == Mode::kSync;
  if (input.when_assigned && sync) {
    return Wrong(Named(*input.table) +
                 " is synchronous: its values are assigned by a round, and a pull after it has "
                 "them; leave when_assigned out");
  }
  if (input.when_assigned && input.table->spec.kind == TableKind::kSparse) {
    return Wrong(Named(*input.table) +
                 " is sparse: a row that nobody has assigned has its initial values; leave "
                 "when_assigned out");
  }
  if (input.when_assigned || input.pull_column != 0)
    return CheckColumn(input, input.pull_column, input.when_assigned ? "when_assigned" : "a column");
  return Status::Ok();
}

bool InPush(const PartitionInput& input, size_t segment) {
  if (input.mask.empty()) return true;
  return (std::to_integer<unsigned>(input.mask[segment / 8]) >> (segment % 8) & 1) != 0;
}

}  // namespace cairn::client
