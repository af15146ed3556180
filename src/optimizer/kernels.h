// The arithmetic of a push without state, inline: for rows whose length the caller knows when it
// compiles. span_ops.h has the same for whole arrays, update.h has the optimizers with state. Every
// result is a function of the operands alone: a fixed order of evaluation, nothing fused, one bit
// pattern for NaN (which NaN an addition gives depends on the machine and on the order of its
// operands).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "cairn/types.h"
#include "optimizer/lanes.h"

namespace cairn::optimizer {

inline constexpr uint32_t kCanonicalNan = 0x7FC00000;

inline float Canonical(float value) { return value == value ? value : std::bit_cast<float>(kCanonicalNan); }
inline LanesOf<float>::Type Canonical(LanesOf<float>::Type value) {
  using Bits = LanesOf<int32_t>::Type;
  const Bits number = value == value;  // all ones where it is no NaN
  return (LanesOf<float>::Type)(((Bits)value & number) | (static_cast<int32_t>(kCanonicalNan) & ~number));
}

// How the optimizer sees what was pushed or summed up.
struct AsPushed {
  template <class T>
  T operator()(T pushed) const {
    return pushed;
  }
};
// The mean of a round, times a scale, its sign turned for kMaximize (a negative factor). Dividing
// or multiplying by 1, and turning a sign, are exact: where there is nothing to do the bits are
// those of AsPushed.
struct OfMean {
  float divisor = 1.0f;
  float factor = 1.0f;
  template <class T>
  T operator()(T sum) const {
    return sum / divisor * factor;
  }
  bool changes_nothing() const { return divisor == 1.0f && factor == 1.0f; }
};
// f(AsPushed) or f(OfMean): loops without work that changes nothing.
template <class F>
inline void WithGradient(const OfMean& gradient, F f) {
  if (gradient.changes_nothing()) return f(AsPushed{});
  return f(gradient);
}

// kSum: w += g.
template <class Gradient = AsPushed>
inline void Sum(float* w, const float* g, size_t n, Gradient of = {}) {
  ForLanes(w, g, n, [of](auto a, auto b) { return Canonical(a + of(b)); });
}
// int64 wraps around; unsigned, where that is defined.
inline void Sum(uint64_t* w, const uint64_t* g, size_t n) {
  ForLanes(w, g, n, [](auto a, auto b) { return a + b; });
}

// kFirst: w = g where w is 0.
inline void First(uint64_t* w, const uint64_t* g, size_t n) {
  for (size_t i = 0; i < n; ++i) w[i] = w[i] == 0 ? g[i] : w[i];
}

// kMean, and an assign of a round: w = g.
template <class Gradient>
inline void Replace(float* w, const float* g, size_t n, Gradient of) {
  ForLanes(w, g, n, [of](auto, auto b) { return Canonical(of(b)); });
}

// kSgd without momentum: w -= lr * (g + weight_decay * w). Without weight decay nothing is
// multiplied by 0: an infinite w must not become NaN.
struct SgdNumbers {
  explicit SgdNumbers(const Hyper& hyper)
      : lr(static_cast<float>(hyper.lr)),
        decay(static_cast<float>(hyper.weight_decay)),
        decays(hyper.weight_decay != 0) {}
  SgdNumbers(float rate, float weight_decay, bool has_decay)
      : lr(rate), decay(weight_decay), decays(has_decay) {}
  float lr, decay;
  bool decays;
};
template <class Gradient = AsPushed>
inline void Sgd(float* w, const float* g, size_t n, const SgdNumbers& numbers, Gradient of = {}) {
  const float lr = numbers.lr, decay = numbers.decay;
  if (numbers.decays) {
    ForLanes(w, g, n, [=](auto a, auto b) { return Canonical(a - lr * (of(b) + decay * a)); });
  } else {
    ForLanes(w, g, n, [=](auto a, auto b) { return Canonical(a - lr * of(b)); });
  }
}

// Staging: the first contribution to a round is copied, later ones are added. A weight of 1 takes
// part in no multiplication, so that it is exact and NaN payloads stay as they are.
inline void StageCopy(float* staged, const float* g, size_t n, float weight) {
  if (weight == 1.0f) {
    std::memcpy(staged, g, n * sizeof(float));
  } else {
    ForLanes(staged, g, n, [weight](auto, auto b) { return weight * b; });
  }
}
inline void StageAdd(float* staged, const float* g, size_t n, float weight) {
  if (weight == 1.0f) {
    ForLanes(staged, g, n, [](auto a, auto b) { return a + b; });
  } else {
    ForLanes(staged, g, n, [weight](auto a, auto b) { return a + weight * b; });
  }
}

}  // namespace cairn::optimizer
