#include "client/protocol/round_reports.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

namespace cairn::client {

bool RoundReports::Take(const wire::ValuesView& values, std::span<const wire::SlotOwner> owners,
                        const From& from) {
  if (values.values.size() != values.entries.size() * sizeof(wire::SlotReport)) return false;
  for (const wire::SlotEntry& entry : values.entries) {
    if (entry.slot >= owners.size()) return false;
    const wire::SlotOwner& owner = owners[entry.slot];
    const bool theirs = owner.server == from.server && owner.thread == from.thread;
    if (from.same_map && !theirs) return false;
  }
  const std::byte* next = values.values.data();
  for (const wire::SlotEntry& entry : values.entries) {
    wire::SlotReport report;
    std::memcpy(&report, next, sizeof(report));
    next += sizeof(report);
    reports_.emplace_back(entry.slot, report);
  }
  return true;
}

RoundInfo RoundReports::Info() const {
  auto reports = reports_;
  std::stable_sort(reports.begin(), reports.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  RoundInfo info;
  for (size_t i = 0; i < reports.size(); ++i) {
    const auto& [slot, report] = reports[i];
    if (i + 1 < reports.size() && reports[i + 1].first == slot) continue;
    info.sum_squares += report.sum_squares;
    info.finite &= report.not_finite == 0;
  }
  info.finite &= std::isfinite(info.sum_squares);
  info.all_joined = all_joined_;
  return info;
}

}  // namespace cairn::client
