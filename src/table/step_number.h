// A step count from a float32 array that somebody pushed: it may be anything.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace cairn::table {

// The nearest whole number; 0 for what is none (negative, NaN), 2^53 for what is more.
inline uint64_t StepsFrom(float value) {
  constexpr float kMost = 0x1p53f;
  if (!(value > 0)) return 0;
  return static_cast<uint64_t>(std::nearbyint(std::min(value, kMost)));
}

}  // namespace cairn::table
