// The arithmetic of a push, inline: for rows whose length the caller knows when it compiles.
// span_ops.h has the same for whole arrays. Every result is a function of the operands alone: a
// fixed order of evaluation, nothing fused, one bit pattern for NaN (which NaN an addition gives
// depends on the machine and on the order of its operands).
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

// kSum: w += g.
inline void Sum(float* w, const float* g, size_t n) {
  ForLanes(w, g, n, [](auto a, auto b) { return Canonical(a + b); });
}
// int64 wraps around; unsigned, where that is defined.
inline void Sum(uint64_t* w, const uint64_t* g, size_t n) {
  ForLanes(w, g, n, [](auto a, auto b) { return a + b; });
}

// kSgd: w -= lr * (g + weight_decay * w).
inline void Sgd(float* w, const float* g, size_t n, const Hyper& hyper) {
  const float lr = hyper.lr;
  const float decay = hyper.weight_decay;
  ForLanes(w, g, n, [lr, decay](auto a, auto b) { return Canonical(a - lr * (b + decay * a)); });
}
// The same with the mean gradient, sum / divisor.
inline void SgdOfMean(float* w, const float* sum, size_t n, const Hyper& hyper, float divisor) {
  const float lr = hyper.lr;
  const float decay = hyper.weight_decay;
  ForLanes(w, sum, n,
           [lr, decay, divisor](auto a, auto b) { return Canonical(a - lr * (b / divisor + decay * a)); });
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
