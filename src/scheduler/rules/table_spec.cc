// What is let through here the servers can do: table/slot_table.cc only asserts it.
#include "scheduler/rules/table_spec.h"

#include <algorithm>
#include <cmath>

#include "scheduler/rules/user_text.h"
#include "wire/cluster_state.h"
#include "wire/frame.h"

namespace cairn::scheduler {
namespace {

constexpr size_t kMaxNameBytes = 255;
// A slot's part of a dense table travels in one frame: half of the largest leaves room for the
// slots that get a block more than others.
constexpr uint64_t kMaxSlotBytes = wire::kMaxBodyBytes / 2;
constexpr uint32_t kMaxDim = 1u << 20;

const char* Word(TableKind kind) { return kind == TableKind::kDense ? "dense" : "sparse"; }
const char* Word(ElementType element) { return element == ElementType::kFloat32 ? "float32" : "int64"; }
const char* Word(Storage storage) {
  if (storage == Storage::kFull) return "full";
  return storage == Storage::kBfloat16 ? "bfloat16" : "float16";
}
const char* Word(Mode mode) { return mode == Mode::kAsync ? "async" : "sync"; }
const char* Word(OptimizerKind kind) { return OptimizerText(kind); }
const char* Word(NonFinitePolicy policy) { return policy == NonFinitePolicy::kReject ? "reject" : "allow"; }
const char* Word(bool yes) { return yes ? "yes" : "no"; }
const char* Word(WireFormat format) {
  switch (format) {
    case WireFormat::kPlain: return "plain";
    case WireFormat::kFloat16: return "f16";
    case WireFormat::kBfloat16: return "bf16";
    case WireFormat::kTopK: return "topk";
    case WireFormat::kLz4: return "lz4";
  }
  return "unknown";
}
std::string Word(uint64_t number) { return std::to_string(number); }
std::string Word(uint32_t number) { return std::to_string(number); }
std::string Word(const std::string& text) { return text; }
std::string Word(float number) { return std::to_string(number); }
std::string Word(const Init& init) {
  static constexpr const char* kNames[] = {"zeros", "constant", "uniform", "normal"};
  std::string text = kNames[static_cast<size_t>(init.kind) % 4];
  if (init.kind == InitKind::kZeros) return text;
  return text + "(" + std::to_string(init.a) + ", " + std::to_string(init.b) + ", seed " +
         std::to_string(init.seed) + (init.stream == 0 ? "" : ", stream " + std::to_string(init.stream)) +
         ")";
}

// The bits of TableSpec::optimizer_flags by name.
struct FlagWord {
  OptimizerFlag flag;
  const char* word;
};
constexpr FlagWord kFlagWords[] = {{kWithMomentum, "momentum"}, {kNesterov, "nesterov"},
                                   {kAmsgrad, "amsgrad"},       {kCentered, "centered"},
                                   {kMaximize, "maximize"},     {kReduceSum, "reduce_sum"}};
constexpr uint32_t kAllFlags = 63;
std::string FlagWords(uint32_t flags) {
  std::string text;
  for (const FlagWord& known : kFlagWords) {
    if ((flags & known.flag) != 0) text += (text.empty() ? "" : "+") + std::string(known.word);
  }
  return text.empty() ? "none" : text;
}

std::string StalenessWord(const TableSpec& spec) {
  return spec.staleness == kUnbounded ? "unbounded" : std::to_string(spec.staleness);
}

void AddDifference(const std::string& what, std::string* out) { *out += (out->empty() ? "" : ", ") + what; }
template <class T>
void Compare(const char* field, const T& there, const T& asked, std::string* out) {
  if (there == asked) return;
  AddDifference(std::string(field) + " (" + Word(there) + " there, " + Word(asked) + " asked for)", out);
}

Status Bad(const TableSpec& spec, const std::string& what) {
  return {Code::kInvalidArgument, "table \"" + Printable(spec.name, kMaxNameBytes) + "\": " + what};
}

bool EnumsInRange(const TableSpec& spec) {
  return spec.kind <= TableKind::kSparse && spec.element <= ElementType::kInt64 && spec.mode <= Mode::kSync &&
         spec.optimizer <= OptimizerKind::kFtrl && spec.non_finite <= NonFinitePolicy::kAllow &&
         spec.init.kind <= InitKind::kNormal && spec.wire <= WireFormat::kLz4 &&
         spec.storage <= Storage::kFloat16 && (spec.optimizer_flags & ~kAllFlags) == 0;
}

Status CheckInit(const TableSpec& spec) {
  const Init& init = spec.init;
  if (!std::isfinite(init.a) || !std::isfinite(init.b)) return Bad(spec, "its initial values are not finite");
  if (spec.element == ElementType::kInt64 && init.kind != InitKind::kZeros &&
      init.kind != InitKind::kConstant)
    return Bad(spec, "tables of int64 begin with zeros or a constant");
  if (init.kind == InitKind::kUniform && init.a > init.b)
    return Bad(spec, "uniform initial values need the low end first");
  if (init.kind == InitKind::kNormal && init.b < 0) return Bad(spec, "the standard deviation is negative");
  return Status::Ok();
}

Status CheckOptimizer(const TableSpec& spec) {
  const OptimizerKind kind = spec.optimizer;
  const bool dense = spec.kind == TableKind::kDense, sync = spec.mode == Mode::kSync;
  const auto among = [&](std::initializer_list<OptimizerKind> kinds) {
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  };
  if (kind == OptimizerKind::kFirst && (spec.element != ElementType::kInt64 || sync))
    return Bad(spec, "optimizer first is for async tables of int64: use such a table, or sum");
  if (spec.element == ElementType::kInt64 && kind != OptimizerKind::kSum && kind != OptimizerKind::kFirst)
    return Bad(spec, std::string("tables of int64 can only sum, or keep the first value: optimizer ") +
                         Word(kind) + " needs float32");
  if (kind == OptimizerKind::kMean && !(dense && sync))
    return Bad(spec, "optimizer mean is for dense sync tables: use one, or sum");
  if (dense && among({OptimizerKind::kSparseAdam, OptimizerKind::kRowwiseAdagrad}))
    return Bad(spec, std::string("optimizer ") + Word(kind) +
                         " works on rows: use a sparse table, or adam or adagrad");
  if (!dense && among({OptimizerKind::kAdam, OptimizerKind::kAdamW, OptimizerKind::kRmsprop}))
    return Bad(spec, std::string("sparse tables have sum, sgd, adagrad, sparse_adam, rowwise_adagrad and "
                                 "ftrl: optimizer ") +
                         Word(kind) + " needs a dense table, or use sparse_adam");
  if (spec.initial_state != 0 &&
      !among({OptimizerKind::kAdagrad, OptimizerKind::kRowwiseAdagrad, OptimizerKind::kFtrl}))
    return Bad(spec, std::string("initial_state is for adagrad, rowwise_adagrad and ftrl: with optimizer ") +
                         Word(kind) + " leave it at 0");
  if (!std::isfinite(spec.initial_state) || spec.initial_state < 0)
    return Bad(spec, "initial_state is a finite number and not negative");
  return Status::Ok();
}

Status CheckFlags(const TableSpec& spec) {
  const OptimizerKind kind = spec.optimizer;
  const bool dense = spec.kind == TableKind::kDense;
  const auto has = [&](OptimizerFlag flag) { return (spec.optimizer_flags & flag) != 0; };
  const auto among = [&](std::initializer_list<OptimizerKind> kinds) {
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  };
  const auto not_for = [&](const char* flag, const char* where) {
    return Bad(spec, std::string("flag ") + flag + " is for " + where + ": leave it out of a " +
                         Word(spec.kind) + " " + Word(spec.mode) + " table with optimizer " + Word(kind));
  };
  using enum OptimizerKind;
  if (has(kWithMomentum) && !(dense && among({kSgd, kRmsprop})))
    return not_for("momentum", "dense tables with sgd or rmsprop");
  if (has(kNesterov) && !(kind == kSgd && has(kWithMomentum)))
    return not_for("nesterov", "sgd with the flag momentum");
  if (has(kAmsgrad) && !among({kAdam, kAdamW})) return not_for("amsgrad", "adam and adamw");
  if (has(kCentered) && kind != kRmsprop) return not_for("centered", "rmsprop");
  if (has(kMaximize) && among({kSum, kMean, kFirst}))
    return not_for("maximize", "optimizers that follow a gradient");
  if (has(kReduceSum) && (spec.mode != Mode::kSync || kind == kSum))
    return not_for("reduce_sum", "sync tables that would take the mean");
  return Status::Ok();
}

Status CheckWire(const TableSpec& spec) {
  const bool lossy = spec.wire != WireFormat::kPlain && spec.wire != WireFormat::kLz4;
  if (lossy && spec.element != ElementType::kFloat32)
    return Bad(
        spec, std::string("wire ") + Word(spec.wire) + " is for tables of float32: leave it out, or use lz4");
  if (spec.wire != WireFormat::kTopK) {
    if (spec.wire_topk == 0) return Status::Ok();
    return Bad(spec, std::string("wire_topk is for wire topk: leave it out with wire ") + Word(spec.wire));
  }
  if (spec.kind != TableKind::kDense)
    return Bad(spec,
               "wire topk is for dense tables, a push of rows has only those that matter: use bf16 or lz4");
  if (spec.wire_topk > 0 && spec.wire_topk <= 1) return Status::Ok();
  return Bad(
      spec,
      "wire topk needs wire_topk, the part of the elements that is sent, above 0 and at most 1; it is " +
          Word(spec.wire_topk));
}

Status CheckStorage(const TableSpec& spec) {
  if (spec.storage == Storage::kFull) return Status::Ok();
  const std::string word = Word(spec.storage);
  if (spec.kind != TableKind::kSparse)
    return Bad(spec, "storage " + word + " is for sparse tables: a dense one keeps float32, leave it out");
  if (spec.element != ElementType::kFloat32)
    return Bad(spec, "storage " + word + " is for tables of float32: leave it out of one of int64");
  constexpr float kLargest = 65504;  // of float16
  if (spec.storage == Storage::kFloat16 &&
      (std::abs(spec.init.a) > kLargest || std::abs(spec.init.b) > kLargest))
    return Bad(spec,
               "its initial values are beyond float16's largest number, 65504: use bfloat16 or float32");
  return Status::Ok();
}

Status CheckSegments(const TableSpec& spec) {
  if (spec.segments.empty()) return Status::Ok();
  if (spec.kind != TableKind::kDense) return Bad(spec, "segments are for dense tables: leave them out");
  if (spec.segments.size() > wire::kMaxSegments)
    return Bad(spec, "a table has at most " + std::to_string(wire::kMaxSegments) + " segments, not " +
                         std::to_string(spec.segments.size()) +
                         ": put small tensors into one segment, or use several tables");
  uint64_t end = 0;
  for (size_t i = 0; i < spec.segments.size(); ++i) {
    if (spec.segments[i] <= end)
      return Bad(spec, "the ends of its segments must ascend, and segment " + std::to_string(i) +
                           " ends at " + std::to_string(spec.segments[i]) + " after " + std::to_string(end) +
                           ": leave out tensors without elements");
    end = spec.segments[i];
  }
  if (end == spec.size) return Status::Ok();
  return Bad(spec, "its last segment ends at " + std::to_string(end) + ", but the table has " +
                       std::to_string(spec.size) + " elements: the two must be equal");
}

}  // namespace

const char* OptimizerText(OptimizerKind optimizer) {
  switch (optimizer) {
    case OptimizerKind::kSum: return "sum";
    case OptimizerKind::kSgd: return "sgd";
    case OptimizerKind::kAdagrad: return "adagrad";
    case OptimizerKind::kAdam: return "adam";
    case OptimizerKind::kAdamW: return "adamw";
    case OptimizerKind::kRmsprop: return "rmsprop";
    case OptimizerKind::kMean: return "mean";
    case OptimizerKind::kFirst: return "first";
    case OptimizerKind::kSparseAdam: return "sparse_adam";
    case OptimizerKind::kRowwiseAdagrad: return "rowwise_adagrad";
    case OptimizerKind::kFtrl: return "ftrl";
  }
  return "unknown";
}

Status CheckSpec(const TableSpec& spec, uint32_t slot_count) {
  if (spec.name.empty()) return {Code::kInvalidArgument, "a table needs a name"};
  if (spec.name.size() > kMaxNameBytes || !IsPrintable(spec.name))
    return Bad(spec,
               "a name has at most " + std::to_string(kMaxNameBytes) + " bytes and no control characters");
  if (!EnumsInRange(spec)) return Bad(spec, "it asks for something that this version of cairn does not know");
  const uint64_t most = kMaxSlotBytes / (spec.element == ElementType::kFloat32 ? 4 : 8) * slot_count;
  if (spec.kind == TableKind::kDense && (spec.size == 0 || spec.size > most))
    return Bad(spec, "a dense table has 1 to " + std::to_string(most) + " elements in a cluster of " +
                         std::to_string(slot_count) + " slots, not " + std::to_string(spec.size) +
                         ": use several tables, or more slots (--slots)");
  if (spec.kind == TableKind::kSparse && (spec.dim == 0 || spec.dim > kMaxDim))
    return Bad(spec, "a row of a sparse table has 1 to 2^20 elements, not " + std::to_string(spec.dim));
  if (spec.deterministic && spec.mode != Mode::kSync) return Bad(spec, "deterministic needs mode sync");
  if (spec.staleness != kUnbounded && spec.mode != Mode::kAsync)
    return Bad(spec, "staleness is for mode async: in sync every worker reads the same round");
  for (auto check : {CheckOptimizer, CheckFlags, CheckSegments, CheckStorage, CheckInit, CheckWire})
    if (Status status = check(spec); !status.ok()) return status;
  return Status::Ok();
}

std::string DescribeDifference(const TableSpec& there, const TableSpec& asked) {
  std::string out;
  Compare("kind", there.kind, asked.kind, &out);
  Compare("element", there.element, asked.element, &out);
  Compare("mode", there.mode, asked.mode, &out);
  Compare("optimizer", there.optimizer, asked.optimizer, &out);
  Compare("optimizer flags", FlagWords(there.optimizer_flags), FlagWords(asked.optimizer_flags), &out);
  Compare("non_finite", there.non_finite, asked.non_finite, &out);
  Compare("deterministic", there.deterministic, asked.deterministic, &out);
  Compare("size", there.size, asked.size, &out);
  Compare("dim", there.dim, asked.dim, &out);
  Compare("init", there.init, asked.init, &out);
  Compare("initial_state", there.initial_state, asked.initial_state, &out);
  Compare("wire", there.wire, asked.wire, &out);
  Compare("wire_topk", there.wire_topk, asked.wire_topk, &out);
  Compare("storage", there.storage, asked.storage, &out);
  Compare("staleness", StalenessWord(there), StalenessWord(asked), &out);
  if (there.segments != asked.segments) AddDifference("segments (a model with other tensors)", &out);
  return out;
}

std::string Describe(const TableSpec& spec) {
  std::string text = std::string(Word(spec.kind)) + " " + Word(spec.mode) + " ";
  if (spec.staleness != kUnbounded) text += "staleness " + StalenessWord(spec) + " ";
  text += std::string(Word(spec.optimizer)) + ", ";
  if (spec.kind == TableKind::kDense)
    return text + std::to_string(spec.size) + " " + Word(spec.element) + " elements";
  return text + "rows of " + std::to_string(spec.dim) + " " + Word(spec.element) +
         (spec.storage == Storage::kFull ? "" : std::string(" stored as ") + Word(spec.storage));
}

}  // namespace cairn::scheduler
