#include "optimizer/update.h"

#include <cmath>

#include "base/check.h"
#include "optimizer/update_kernels.h"

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
  float* w = values.data();
  const float* g = pushed.data();
  const size_t n = values.size();
  WithGradient(gradient, [&](auto of) {
    switch (s.kind) {
      case OptimizerKind::kSum: return Sum(w, g, n, of);
      case OptimizerKind::kMean: return Replace(w, g, n, of);
      case OptimizerKind::kSgd:
        if (s.has_momentum) return SgdMomentum(s, of, w, g, state[0], n);
        return Sgd(w, g, n, SgdNumbers(s.rate, s.decay, s.decays), of);
      case OptimizerKind::kAdagrad: return Adagrad(s, of, w, g, state[0], n);
      case OptimizerKind::kAdam:
      case OptimizerKind::kAdamW:
        return Adam(s, of, w, g, state[0], state[1], (s.flags & kAmsgrad) != 0 ? state[2] : nullptr, n);
      case OptimizerKind::kRmsprop: {
        const bool buffered = (s.flags & kWithMomentum) != 0;
        float* average = (s.flags & kCentered) != 0 ? state[buffered ? 2 : 1] : nullptr;
        return Rmsprop(s, of, w, g, state[0], s.has_momentum ? state[1] : nullptr, average, n);
      }
      case OptimizerKind::kSparseAdam: return SparseAdam(s, of, w, g, state[0], state[1], n);
      case OptimizerKind::kRowwiseAdagrad: return RowwiseAdagrad(s, of, w, g, state[0], n);
      case OptimizerKind::kFtrl: return Ftrl(s, of, w, g, state[0], state[1], n);
      case OptimizerKind::kFirst: break;
    }
    CAIRN_CHECK(s.kind != OptimizerKind::kFirst);  // int64 only
  });
}

}  // namespace cairn::optimizer
