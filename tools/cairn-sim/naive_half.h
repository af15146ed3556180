// A float32 as float16 or bfloat16 has it, by arithmetic on doubles: for the reference model and for what
// gradients are compared with (wire/half_floats.h does it with bits).
#pragma once

#include "cairn/types.h"

namespace cairn::sim {

// The nearest of the format, of two the even one. What is too large becomes infinite, or the largest that
// there is. Other formats leave the value alone.
float NaiveHalf(WireFormat format, float value, bool to_largest);

}  // namespace cairn::sim
