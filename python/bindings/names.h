// Words of the Python side to the values of the C++ API. An unknown word raises
// InvalidArgumentError, which lists the known ones.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>

#include "cairn/types.h"

namespace cairn::python {

ElementType ElementOf(const std::string& name);
Mode ModeOf(const std::string& name);
OptimizerKind OptimizerOf(const std::string& name);
NonFinitePolicy NonFiniteOf(const std::string& name);
// Kind, a, b, seed: ("normal", mean, deviation, seed), ("uniform", low, high, seed), …
using InitTuple = std::tuple<std::string, double, double, uint64_t>;
Init InitOf(const InitTuple& init);

}  // namespace cairn::python
