// The inverse of the normal distribution function from +, -, *, / and sqrt alone, which IEEE
// defines to the last bit: libm's log differs between machines, and owners of a slot must agree.
#pragma once

namespace cairn::table {

// The x below which a standard normal variable lies with probability p. Requires 0 < p < 1.
// Relative error about 1e-15.
double NormalQuantile(double p);

// Natural logarithm. Requires a normal (not denormal) positive x.
double BasicLog(double x);

}  // namespace cairn::table
