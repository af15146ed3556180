// Words of the Python side to the values of the C++ API. An unknown word raises
// InvalidArgumentError, which lists the known ones.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <variant>

#include "cairn/types.h"

namespace cairn::python {

ElementType ElementOf(const std::string& name);
Storage StorageOf(const std::string& name);
Mode ModeOf(const std::string& name);
OptimizerKind OptimizerOf(const std::string& name);
NonFinitePolicy NonFiniteOf(const std::string& name);
WireFormat WireOf(const std::string& name);
InitKind InitKindOf(const std::string& name);
// Kind, a, b, seed: ("normal", mean, deviation, seed), ("uniform", low, high, seed), …; and the
// stream (Init::stream), where the table's own number is not to take part.
using OwnInit = std::tuple<std::string, double, double, uint64_t>;
using StreamInit = std::tuple<std::string, double, double, uint64_t, uint64_t>;
using InitTuple = std::variant<OwnInit, StreamInit>;
Init InitOf(const InitTuple& init);

}  // namespace cairn::python
