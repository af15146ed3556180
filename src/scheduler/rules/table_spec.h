// Which tables there can be, and how two specs differ (rule 8). Pure.
#pragma once

#include <cstdint>
#include <string>

#include "cairn/status.h"
#include "cairn/types.h"

namespace cairn::scheduler {

// Whether there is such a table, and what to do if not.
Status CheckSpec(const TableSpec& spec, uint32_t slot_count);
// What differs, as "mode (sync there, async asked for), size (…)". Empty: nothing does.
std::string DescribeDifference(const TableSpec& there, const TableSpec& asked);
std::string Describe(const TableSpec& spec);         // "dense sync sgd, 7850 float32 elements"
const char* OptimizerText(OptimizerKind optimizer);  // "sgd"

}  // namespace cairn::scheduler
