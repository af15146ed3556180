#include "server/slots/hot_report.h"

#include <algorithm>
#include <map>
#include <utility>

namespace cairn::server {

void BoundHotReport(HotReport& report) {
  std::sort(report.sampled.begin(), report.sampled.end(), [](const auto& a, const auto& b) {
    return a.count != b.count ? a.count > b.count : a.table < b.table;
  });
  if (report.sampled.size() > wire::kMaxSampledTables) report.sampled.resize(wire::kMaxSampledTables);
  std::sort(report.rows.begin(), report.rows.end(), [](const auto& a, const auto& b) {
    return a.count != b.count ? a.count > b.count : std::pair(a.table, a.key) < std::pair(b.table, b.key);
  });
  std::map<TableId, size_t> rows;
  std::erase_if(report.rows, [&](const auto& row) { return ++rows[row.table] > kHotRowsOfATable; });
  if (report.rows.size() > wire::kMaxHotRows) report.rows.resize(wire::kMaxHotRows);
}

}  // namespace cairn::server
