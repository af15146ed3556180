// One step of an optimizer on a piece of a dense float32 table or on a row of a sparse one, in the
// arithmetic of torch's single-tensor implementations (torch.optim.*._single_tensor_*, and
// torch.optim._functional.sparse_adam): hyper-parameters and what is
// derived from them are doubles, rounded to float where torch hands a Python number to a float32
// operation. Nothing is fused (torch's vector loops may), so results agree with torch to rounding
// and with themselves, on every machine, bit for bit. update_reference.h says the same slowly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cairn/types.h"
#include "optimizer/gradient.h"
#include "optimizer/kernels.h"

namespace cairn::optimizer {

inline constexpr size_t kMaxStateColumns = 3;

// base to the power of n, by multiplications alone: the same bits whatever the maths library.
double Power(double base, uint64_t n);

// What one step with given hyper-parameters needs, derived once for all elements.
struct StepNumbers {
  // `step` counts from 1. Requires an optimizer for float32: not kFirst.
  StepNumbers(OptimizerKind kind, uint32_t flags, const Hyper& hyper, uint64_t step);

  OptimizerKind kind;
  uint32_t flags;  // OptimizerFlag bits
  uint64_t step;
  bool decays;           // weight_decay is not 0
  bool has_momentum;     // kWithMomentum, and the momentum is not 0 now: otherwise its buffer rests
  float decay;           // weight decay; kAdamW: what w is multiplied by, 1 - lr * weight_decay
  float rate;            // lr; kAdagrad: decayed by its lr_decay; kAdam, kAdamW: over the correction;
                         // kSparseAdam: with both corrections
  float momentum = 0;    // kSgd, kRmsprop
  float fresh = 0;       // kSgd: 1 - dampening
  float lerp = 0;        // weight of the gradient in its average: 1 - beta1; kRmsprop: 1 - alpha
  float beta2 = 0;       // kRmsprop: alpha; kFtrl: beta
  float square = 0;      // 1 - beta2
  float correction = 1;  // kAdam, kAdamW: square root of 1 - beta2 ^ step
  float eps = 0;
  float l1 = 0;  // kFtrl
};

// What state[column] holds before the first step; `accumulator` is TableSpec::initial_state.
float InitialState(OptimizerKind kind, uint32_t column, float accumulator);

// The gradient's factor: `scale`, with the sign turned for kMaximize.
OfMean GradientOf(uint32_t flags, float divisor, double scale);

// state[i] is column i + 1 of cairn/types.h, as many as StateColumns says, each as long as w
// (kRowwiseAdagrad: w is a row, and its state one number). All arrays are distinct. Requires
// g.size() == w.size().
void UpdateSpan(const StepNumbers& numbers, const OfMean& gradient, std::span<float> w,
                std::span<const float> g, float* const* state);

// The same step on rows of a sparse table, each with its state behind its values, column after
// column: dim numbers each, or one for kRowwiseAdagrad. Made once for a batch of rows, called for
// some of them at a time: a row is short, so that a call for each would cost more than its work.
struct RowStep {
  RowStep(const StepNumbers& numbers, const OfMean& gradient, size_t dim);
  // Row by row, so that one may come twice.
  void operator()(float* const* rows, const float* const* gradients, size_t count) const {
    work(*this, rows, gradients, count);
  }

  StepNumbers numbers;
  OfMean gradient;
  size_t dim;
  decltype(Kernels::update_rows) work;
};

// The same on rows whose values are narrow (narrow.h) and lie in NarrowElements(dim) places. A row's
// new values are rounded by its seed.
struct NarrowRowStep {
  NarrowRowStep(const StepNumbers& numbers, const OfMean& gradient, size_t dim, Storage storage);
  void operator()(uint16_t* const* rows, const uint64_t* seeds, const float* const* gradients,
                  size_t count) const {
    work(*this, rows, seeds, gradients, count);
  }

  StepNumbers numbers;
  OfMean gradient;
  size_t dim;
  Storage storage;
  decltype(Kernels::update_narrow_rows) work;
};

}  // namespace cairn::optimizer
