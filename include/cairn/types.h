// The words of the public API: table specs, modes, hyper-parameters. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cairn {

// A key of a sparse table. A plain integer, so that arrays of keys are used where they lie.
using RowKey = uint64_t;

// All enum values below travel on the wire and lie in the scheduler's log: never reuse one.
enum class TableKind : uint8_t { kDense = 0, kSparse = 1 };
enum class ElementType : uint8_t { kFloat32 = 0, kInt64 = 1 };
enum class Mode : uint8_t {
  kAsync = 0,  // a push applies at once, nothing waits
  kSync = 1,   // a round applies once, when every live worker is done with it
};
// What the server does with a push. All but kSum, kMean and kFirst have the arithmetic of the
// torch.optim class of their name, in float32. In sync they work with the weighted mean of the
// round. Dense tables have kSum to kFirst and kFtrl; sparse tables kSum, kSgd, kAdagrad, kFirst,
// kSparseAdam, kRowwiseAdagrad and kFtrl, which change only the rows that a push names.
enum class OptimizerKind : uint8_t {
  kSum = 0,  // w += g (in sync: the sum over the workers; int64 wraps)
  kSgd = 1,  // momentum, nesterov and dampening by flags
  kAdagrad = 2,
  kAdam = 3,   // weight decay added to the gradient
  kAdamW = 4,  // weight decay decoupled from it
  kRmsprop = 5,
  kMean = 6,            // sync: w = the mean of the round: the servers only reduce
  kFirst = 7,           // int64, async: w = g where w is 0, else nothing: the first one wins
  kSparseAdam = 8,      // torch.optim.SparseAdam: Adam on the rows that have a gradient
  kRowwiseAdagrad = 9,  // one accumulator a row: sum += mean(g²), w -= lr · g / (√sum + eps)
  kFtrl = 10,           // FTRL-Proximal of McMahan et al. 2013: lr α, beta β, l1 λ₁, l2 λ₂
};
// Details that decide which state a table keeps: bits of TableSpec::optimizer_flags.
enum OptimizerFlag : uint32_t {
  kWithMomentum = 1,  // kSgd, kRmsprop: Hyper::beta1 is a momentum, and there is a buffer for it
  kNesterov = 2,      // kSgd with momentum
  kAmsgrad = 4,       // kAdam, kAdamW
  kCentered = 8,      // kRmsprop
  kMaximize = 16,     // all: the gradient's sign is turned
  kReduceSum = 32,    // sync: the weighted sum of the round instead of the mean
};
// What happens to a push that carries NaN or Inf.
enum class NonFinitePolicy : uint8_t { kReject = 0, kAllow = 1 };
// How a table keeps its values. They travel and are worked with as its elements are; what an
// optimizer makes of them is rounded at random (seeded), what is assigned to the nearest. State of
// optimizers is never narrow.
enum class Storage : uint8_t {
  kFull = 0,      // as its elements are
  kBfloat16 = 1,  // sparse tables of float32
  kFloat16 = 2,   // the same; up to 65504
};
enum class InitKind : uint8_t { kZeros = 0, kConstant = 1, kUniform = 2, kNormal = 3 };
// How a table's values travel over TCP; for networks that are slow. Assigned values and columns other
// than 0 are never rounded.
enum class WireFormat : uint8_t {
  kPlain = 0,
  kFloat16 = 1,   // gradients, and values in answers, rounded to it (finite up to 65504)
  kBfloat16 = 2,  // the same with float32's range and 8 bits of precision
  kTopK = 3,      // dense: of each segment of a gradient the largest elements; the rest is added to the
                  // next gradient
  kLz4 = 4,       // nothing is lost; keys too
};

// The value of a parameter before its first push: a function of (seed, table, key, column) alone,
// the same on every machine.
struct Init {
  InitKind kind = InitKind::kZeros;
  float a = 0.0f;  // constant: the value; uniform: the low end; normal: the mean
  float b = 0.0f;  // uniform: the high end (exclusive); normal: the standard deviation
  uint64_t seed = 0;
  // 0: the table's own number takes part, so that tables of one seed differ. Else this number does
  // in its place: tables with the same one (and InitialRows) have the same initial rows.
  uint64_t stream = 0;

  static Init Zeros() { return {}; }
  static Init Constant(float value) { return {InitKind::kConstant, value, 0, 0, 0}; }
  static Init Uniform(float low, float high, uint64_t seed) {
    return {InitKind::kUniform, low, high, seed, 0};
  }
  static Init Normal(float mean, float stddev, uint64_t seed) {
    return {InitKind::kNormal, mean, stddev, seed, 0};
  }
  bool operator==(const Init&) const = default;
};

// TableSpec::staleness of a table that has no bound.
inline constexpr uint32_t kUnbounded = UINT32_MAX;

// Two specs are the same table exactly when every field is equal.
struct TableSpec {
  std::string name;
  TableKind kind = TableKind::kDense;
  ElementType element = ElementType::kFloat32;
  Mode mode = Mode::kAsync;
  OptimizerKind optimizer = OptimizerKind::kSum;
  NonFinitePolicy non_finite = NonFinitePolicy::kReject;
  bool deterministic = false;  // sync only: sum in the order of ranks, so that a run repeats bit for bit
  uint64_t size = 0;           // dense: number of elements
  uint32_t dim = 0;            // sparse: elements of a row
  Init init;
  uint32_t optimizer_flags = 0;  // OptimizerFlag bits
  float initial_state = 0.0f;    // kAdagrad, kRowwiseAdagrad, kFtrl: what the accumulator starts with
  // Dense: the ends of the segments (a model's tensors) that the table is made of, ascending, the
  // last one being `size`; empty: one segment. A push may leave segments out; each counts its own
  // steps, as each parameter does in torch.optim.
  std::vector<uint64_t> segments;
  WireFormat wire = WireFormat::kPlain;
  float wire_topk = 0.0f;  // kTopK: which part of the elements, above 0 and at most 1
  Storage storage = Storage::kFull;
  // Async only: a worker reads only when no other is more than so many steps behind it (EndStep). 0: as in
  // lock-step.
  uint32_t staleness = kUnbounded;

  bool operator==(const TableSpec&) const = default;
};

// Hyper-parameters travel with every push, so they may change every step. In a sync round all
// workers must give the same. cairn/optimizer.h fills them in by torch's names.
struct Hyper {
  double lr = 0.01;
  double weight_decay = 0.0;  // kFtrl: l2
  double beta1 = 0.0;         // kAdam, kAdamW, kSparseAdam: beta1; kSgd, kRmsprop: momentum; kFtrl: l1
  double beta2 = 0.0;         // kAdam, kAdamW, kSparseAdam: beta2; kRmsprop: alpha; kFtrl: beta
  double eps = 0.0;           // kAdagrad, kRowwiseAdagrad, kAdam, kAdamW, kSparseAdam, kRmsprop
  double dampening = 0.0;     // kSgd: dampening; kAdagrad: lr_decay
  // Sparse tables: the worker's count of the table's steps, from 1 (kSparseAdam, kAdagrad's lr_decay; a
  // slot sees only pushes that touch it). Sync: those who give one give the same, 0 says nothing; all
  // 0: the round is no step. Dense tables count by themselves, each segment its own.
  uint64_t step = 0;
  bool operator==(const Hyper&) const = default;
};

// What a push does to a table.
enum class PushOp : uint8_t {
  kUpdate = 0,  // the optimizer
  // The values become those pushed, the optimizer is not asked. Dense: a round in sync mode. Sparse:
  // the rows named, never a round: for one worker, between steps; rows that exist keep their state.
  kAssign = 1,
  // The same, but only where no values have been assigned yet (sparse: where the row does not exist
  // yet); never a round.
  kAssignOnce = 2,
};

// Columns of a dense table: 0 are the values; 1, 2, 3 the optimizer's state arrays in the order
// below; kStepColumn the number of steps, once per element of its segment.
//   kSgd: momentum_buffer; kAdagrad: sum; kAdam, kAdamW: exp_avg, exp_avg_sq, max_exp_avg_sq
//   (kAmsgrad); kRmsprop: square_avg, then momentum_buffer (kWithMomentum), then grad_avg (kCentered);
//   kSparseAdam: exp_avg, exp_avg_sq; kRowwiseAdagrad: sum; kFtrl: z, n
// Sparse tables are read in the same columns, a row of dim values for each key: what a row has once
// (kRowwiseAdagrad's sum; kStepColumn: the step of the slot's last applied push) stands in all of them.
inline constexpr uint8_t kStepColumn = 15;
// State arrays that such a table has (0 to 3).
uint32_t StateColumns(OptimizerKind kind, uint32_t flags);

}  // namespace cairn
