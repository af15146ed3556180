// The words of the public API: table specs, modes, hyper-parameters. Plain values.
#pragma once

#include <cstdint>
#include <string>

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
// What the server does with a push. kSum adds it (in sync: the sum over the workers, int64 wraps);
// kSgd does w -= lr * (g + weight_decay * w) with the mean of the round.
enum class OptimizerKind : uint8_t { kSum = 0, kSgd = 1 };
// What happens to a push that carries NaN or Inf.
enum class NonFinitePolicy : uint8_t { kReject = 0, kAllow = 1 };
enum class InitKind : uint8_t { kZeros = 0, kConstant = 1, kUniform = 2, kNormal = 3 };

// The value of a parameter before its first push: a function of (seed, table, key, column) alone,
// the same on every machine.
struct Init {
  InitKind kind = InitKind::kZeros;
  float a = 0.0f;  // constant: the value; uniform: the low end; normal: the mean
  float b = 0.0f;  // uniform: the high end (exclusive); normal: the standard deviation
  uint64_t seed = 0;

  static Init Zeros() { return {}; }
  static Init Constant(float value) { return {InitKind::kConstant, value, 0, 0}; }
  static Init Uniform(float low, float high, uint64_t seed) {
    return {InitKind::kUniform, low, high, seed};
  }
  static Init Normal(float mean, float stddev, uint64_t seed) {
    return {InitKind::kNormal, mean, stddev, seed};
  }
  bool operator==(const Init&) const = default;
};

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

  bool operator==(const TableSpec&) const = default;
};

// Hyper-parameters travel with every push, so they may change every step. In a sync round all
// workers must give the same.
struct Hyper {
  float lr = 0.01f;
  float weight_decay = 0.0f;
  bool operator==(const Hyper&) const = default;
};

}  // namespace cairn
