// The rows that are asked for most, of the tables that are, as a heartbeat says it. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "wire/control.h"

namespace cairn::server {

struct HotReport {
  std::vector<wire::HotRow> rows;
  std::vector<wire::SampledTable> sampled;
};

// Of one table in one report.
inline constexpr size_t kHotRowsOfATable = 16;
// Cuts what one or several shards say down to what a heartbeat takes: the rows with the most of each table,
// in as many tables as there is room for; by table, then by count.
void BoundHotReport(HotReport& report);

}  // namespace cairn::server
