#include "server/slots/refusal_texts.h"

#include <cmath>
#include <string>

namespace cairn::server {
namespace {

std::string Quoted(const TableSpec& spec) { return "table \"" + spec.name + "\""; }

uint64_t CountSum(std::span<const wire::SlotEntry> entries) {
  uint64_t sum = 0;
  for (const wire::SlotEntry& entry : entries) sum += entry.count;
  return sum;
}

Status Invalid(std::string text) { return {Code::kInvalidArgument, std::move(text)}; }

Status WrongWidth(const TableSpec& spec, size_t rows, size_t value_bytes, const char* what) {
  const size_t element = ElementBytes(spec);
  const std::string has = Quoted(spec) + " has dim " + std::to_string(spec.dim) + ", " + what + " has ";
  if (rows > 0 && value_bytes % (rows * element) == 0) {
    return Invalid(has + std::to_string(value_bytes / (rows * element)) +
                   ": recreate the table or fix the model");
  }
  return Invalid(has + std::to_string(value_bytes) + " bytes for " + std::to_string(rows) + " rows of " +
                 std::to_string(element) + "-byte elements: recreate the table or fix the model");
}

// What the optimizer itself can't work with.
Status CheckNumbers(const TableSpec& spec, const Hyper& hyper) {
  const OptimizerKind kind = spec.optimizer;
  if (kind == OptimizerKind::kFtrl && !(static_cast<float>(hyper.lr) > 0)) {
    return Invalid(Quoted(spec) + ": ftrl divides by its lr, which must be above 0, not " +
                   std::to_string(hyper.lr) + ": check the optimizer's settings");
  }
  if (kind == OptimizerKind::kFtrl && (hyper.beta1 < 0 || hyper.beta2 < 0 || hyper.weight_decay < 0)) {
    return Invalid(Quoted(spec) + ": ftrl's l1, l2 and beta must not be negative: check the optimizer's " +
                   "settings");
  }
  const bool decays = kind != OptimizerKind::kSparseAdam && kind != OptimizerKind::kRowwiseAdagrad;
  if (!decays && hyper.weight_decay != 0) {
    return Invalid(Quoted(spec) + ": its optimizer has no weight decay, the push has " +
                   std::to_string(hyper.weight_decay) + ": leave it at 0");
  }
  return Status::Ok();
}

}  // namespace

Status DroppedTable(TableId table) {
  return {Code::kNotFound, "table " + std::to_string(table.value) + " has been dropped: create it again"};
}

Status WrongMode(const TableSpec& spec, const char* what) {
  const bool sync = spec.mode == Mode::kSync;
  return Invalid(Quoted(spec) + (sync ? " is synchronous, " : " is asynchronous, ") + what +
                 (sync ? " is for asynchronous tables: contribute to its round instead"
                       : " is for synchronous tables: it has no rounds"));
}

Status CheckPushShape(const TableSpec& spec, const wire::PushView& push, const char* what) {
  const uint64_t units = CountSum(push.entries);
  if (spec.kind == TableKind::kDense) {
    if (!push.keys.empty()) {
      return Invalid(Quoted(spec) + " is dense, " + what + " has " + std::to_string(push.keys.size()) +
                     " keys: use a sparse table or leave the keys out");
    }
    const uint64_t bytes = units * ElementBytes(spec);
    if (push.values.size() == bytes) return Status::Ok();
    return Invalid(Quoted(spec) + " has elements of " + std::to_string(ElementBytes(spec)) + " bytes, " +
                   what + " has " + std::to_string(push.values.size()) + " bytes for " +
                   std::to_string(units) + " elements: use the table's element type");
  }
  if (units != push.keys.size()) {
    return Invalid(Quoted(spec) + " is sparse, " + what + " has " + std::to_string(units) + " rows and " +
                   std::to_string(push.keys.size()) + " keys: give each row its key");
  }
  if (push.values.size() == units * UnitBytes(spec)) return Status::Ok();
  return WrongWidth(spec, units, push.values.size(), what);
}

Status CheckPullShape(const TableSpec& spec, std::span<const wire::SlotEntry> entries,
                      std::span<const uint64_t> keys) {
  if (spec.kind == TableKind::kDense) {
    if (keys.empty()) return Status::Ok();
    return Invalid(Quoted(spec) + " is dense, pull has " + std::to_string(keys.size()) +
                   " keys: use a sparse table or leave the keys out");
  }
  const uint64_t units = CountSum(entries);
  if (units == keys.size()) return Status::Ok();
  return Invalid(Quoted(spec) + " is sparse, pull asks for " + std::to_string(units) + " rows with " +
                 std::to_string(keys.size()) + " keys: give each row its key");
}

Status CheckDenseCount(const TableSpec& spec, const wire::SlotEntry& entry, uint64_t elements,
                       const char* what) {
  if (entry.count == elements) return Status::Ok();
  return Invalid(Quoted(spec) + " has " + std::to_string(elements) + " elements in slot " +
                 std::to_string(entry.slot) + ", " + what + " has " + std::to_string(entry.count) +
                 ": send whole slots, with the table's size");
}

Status CheckHyper(const TableSpec& spec, const wire::PushParams& params) {
  const Hyper hyper = params.hyper();
  const struct {
    const char* name;
    double value;
  } fields[] = {{"lr", hyper.lr},       {"weight_decay", hyper.weight_decay},
                {"beta1", hyper.beta1}, {"beta2", hyper.beta2},
                {"eps", hyper.eps},     {"dampening", hyper.dampening}};
  for (const auto& field : fields) {
    if (std::isfinite(field.value)) continue;
    return {Code::kNotFinite, Quoted(spec) + ": " + field.name + " " + std::to_string(field.value) +
                                  " must be finite: check the optimizer's settings"};
  }
  // An assign does not ask the optimizer, and who has joined agrees to what others say.
  const bool used = static_cast<PushOp>(params.op) == PushOp::kUpdate && !params.has(wire::kParamJoined);
  return used ? CheckNumbers(spec, hyper) : Status::Ok();
}

Status CheckAsyncParams(const TableSpec& spec, const wire::PushParams& params) {
  if (params.value_scale != 1.0) {
    return Invalid(Quoted(spec) + ": a numbered push has no value scale, which is for rounds of " +
                   "synchronous tables: scale the values before the push");
  }
  return CheckHyper(spec, params);
}

Status CheckRoundParams(const TableSpec& spec, const wire::PushParams& params, bool contributes) {
  const auto op = static_cast<PushOp>(params.op);
  const bool joined = params.has(wire::kParamJoined);
  if (op != PushOp::kUpdate && !joined && spec.kind == TableKind::kSparse) {
    return Invalid(Quoted(spec) + " is sparse: an assign of rows is a numbered push and no round: let one " +
                   "worker assign them, between rounds");
  }
  if (op == PushOp::kAssignOnce) {
    return Invalid(Quoted(spec) + " is synchronous, assigning once is for asynchronous tables: let one " +
                   "worker assign in a round");
  }
  if (op != PushOp::kUpdate && !joined && (params.flags & (wire::kParamTwoPhase | wire::kParamDecide)) != 0) {
    return Invalid(Quoted(spec) + ": an assign has nothing to decide: use a round in one phase");
  }
  if (joined && contributes) {
    return Invalid(Quoted(spec) + ": a worker that has joined gives no values: mark the round instead");
  }
  return CheckHyper(spec, params);
}

}  // namespace cairn::server
