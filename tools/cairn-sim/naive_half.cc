#include "naive_half.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace cairn::sim {

float NaiveHalf(WireFormat format, float value, bool to_largest) {
  const bool narrow = format == WireFormat::kFloat16;
  if (!narrow && format != WireFormat::kBfloat16) return value;
  if (!std::isfinite(value) || value == 0) return value;
  const int digits = narrow ? 11 : 8, least_exponent = narrow ? -14 : -126;
  const double largest = narrow ? 65504.0 : 0x1.FEp127;
  const double last_digit = std::ldexp(1.0, std::max(std::ilogb(value), least_exponent) - (digits - 1));
  const double rounded = std::nearbyint(value / last_digit) * last_digit;
  if (std::abs(rounded) <= largest) return static_cast<float>(rounded);
  const double beyond = to_largest ? largest : std::numeric_limits<double>::infinity();
  return static_cast<float>(std::copysign(beyond, value));
}

}  // namespace cairn::sim
