// How the optimizers see what was pushed or summed up. All arithmetic of this folder is a function
// of its operands alone: a fixed order of evaluation, nothing fused, one bit pattern for NaN (which
// NaN an addition gives depends on the machine and on the order of its operands).
#pragma once

#include <cstdint>

namespace cairn::optimizer {

inline constexpr uint32_t kCanonicalNan = 0x7FC00000;

// The mean of a round, times a scale, its sign turned for kMaximize (a negative factor):
// sum / divisor * factor. Dividing or multiplying by 1, and turning a sign, are exact: where there
// is nothing to do the bits are those of what was pushed.
struct OfMean {
  float divisor = 1.0f;
  float factor = 1.0f;
  bool changes_nothing() const { return divisor == 1.0f && factor == 1.0f; }
};

}  // namespace cairn::optimizer
