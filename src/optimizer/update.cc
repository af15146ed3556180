#include "optimizer/update.h"

#include <cmath>

#include "base/check.h"

namespace cairn::optimizer {

double Power(double base, uint64_t n) {
  double result = 1.0;
  for (; n > 0; n >>= 1) {
    if ((n & 1) != 0) result *= base;
    base *= base;
  }
  return result;
}

StepNumbers::StepNumbers(OptimizerKind k, uint32_t f, const Hyper& hyper, uint64_t number)
    : kind(k),
      flags(f),
      step(number),
      decays(hyper.weight_decay != 0),
      has_momentum((f & kWithMomentum) != 0 && hyper.beta1 != 0),
      decay(static_cast<float>(hyper.weight_decay)),
      rate(static_cast<float>(hyper.lr)),
      eps(static_cast<float>(hyper.eps)) {
  CAIRN_CHECK(step > 0);
  switch (kind) {
    case OptimizerKind::kSum:
    case OptimizerKind::kMean: return;
    case OptimizerKind::kSgd:
      momentum = static_cast<float>(hyper.beta1);
      fresh = static_cast<float>(1 - hyper.dampening);
      return;
    case OptimizerKind::kAdagrad:
      rate = static_cast<float>(hyper.lr / (1 + static_cast<double>(step - 1) * hyper.dampening));
      return;
    case OptimizerKind::kAdamW:
      decay = static_cast<float>(1 - hyper.lr * hyper.weight_decay);
      [[fallthrough]];
    case OptimizerKind::kAdam:
      lerp = static_cast<float>(1 - hyper.beta1);
      beta2 = static_cast<float>(hyper.beta2);
      square = static_cast<float>(1 - hyper.beta2);
      rate = static_cast<float>(hyper.lr / (1 - Power(hyper.beta1, step)));
      correction = static_cast<float>(std::sqrt(1 - Power(hyper.beta2, step)));
      return;
    case OptimizerKind::kRmsprop:
      momentum = static_cast<float>(hyper.beta1);
      has_momentum = has_momentum && hyper.beta1 > 0;  // as torch has it here, other than in SGD
      lerp = square = static_cast<float>(1 - hyper.beta2);
      beta2 = static_cast<float>(hyper.beta2);
      return;
    case OptimizerKind::kSparseAdam:
      lerp = static_cast<float>(1 - hyper.beta1);
      square = static_cast<float>(1 - hyper.beta2);
      rate = static_cast<float>(hyper.lr * std::sqrt(1 - Power(hyper.beta2, step)) /
                                (1 - Power(hyper.beta1, step)));
      return;
    case OptimizerKind::kRowwiseAdagrad: return;
    case OptimizerKind::kFtrl:
      l1 = static_cast<float>(hyper.beta1);
      beta2 = static_cast<float>(hyper.beta2);
      return;
    case OptimizerKind::kFirst: break;
  }
  CAIRN_CHECK(kind != OptimizerKind::kFirst);
}

float InitialState(OptimizerKind kind, uint32_t column, float accumulator) {
  return kind == OptimizerKind::kFtrl && column == 0 ? 0.0f : accumulator;  // z, which is no accumulator
}

OfMean GradientOf(uint32_t flags, float divisor, double scale) {
  const auto factor = static_cast<float>(scale);
  return {divisor, (flags & kMaximize) != 0 ? -factor : factor};
}

void UpdateSpan(const StepNumbers& s, const OfMean& gradient, std::span<float> values,
                std::span<const float> pushed, float* const* state) {
  CAIRN_CHECK(values.size() == pushed.size());
  ChosenKernels().update(s, gradient, values.data(), pushed.data(), state, values.size());
}

RowStep::RowStep(const StepNumbers& s, const OfMean& of, size_t row_length)
    : numbers(s), gradient(of), dim(row_length), work(ChosenKernels().update_rows) {}

NarrowRowStep::NarrowRowStep(const StepNumbers& s, const OfMean& of, size_t row_length, Storage kept)
    : numbers(s), gradient(of), dim(row_length), storage(kept), work(ChosenKernels().update_narrow_rows) {
  CAIRN_CHECK(kept != Storage::kFull);
}

}  // namespace cairn::optimizer
