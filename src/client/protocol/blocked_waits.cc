#include "client/protocol/blocked_waits.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/random.h"

namespace cairn::client {

std::optional<wire::Blocked> BlockedWaits::Now(int64_t now_us) const {
  // One that leaves begins nothing more; what it has under way must end first, told to its program or not.
  const bool leaves = calls_.leaving();
  const bool waits = leaves || (options_.program_waits && options_.program_waits(now_us));
  if (!waits || calls_.waits_for_scheduler() || !bound_.none_wait()) return std::nullopt;
  wire::Blocked report;
  report.incarnation = scheduler_.incarnation();
  report.barrier = calls_.in_barrier() ? scheduler_.barrier_count() : 0;
  report.serial = Mix64(report.barrier, 2 * requests_.next_id() + (leaves ? 1 : 0));
  bool first = true;
  for (const auto& [id, record] : requests_) {
    // One that is held back waits for an earlier one of its table, which is among the others.
    if ((record.ended && !leaves) || (record.parks && !record.sent)) continue;
    std::vector<uint32_t> missing = record.missing_ranks;
    std::sort(missing.begin(), missing.end());
    const bool only_us = missing.size() == 1 && missing[0] == scheduler_.rank().value;
    if (missing.empty() || only_us) return std::nullopt;  // for a server: that will end
    if (std::exchange(first, false)) {
      report.ranks = missing;
      report.what = words_.WhatOf(record) + (leaves ? " before it leaves" : "");
    } else {
      std::erase_if(report.ranks,
                    [&](uint32_t r) { return !std::binary_search(missing.begin(), missing.end(), r); });
    }
    if (report.ranks.empty()) return std::nullopt;
    report.serial = Mix64(report.serial, id);
  }
  if (first && report.barrier == 0) return std::nullopt;
  for (uint32_t r : report.ranks) report.serial = Mix64(report.serial, r);
  report.serial |= 1;  // 0 is none
  return report;
}

void BlockedWaits::OnTick(bool runs, int64_t now_us) {
  if (now_us < report_us_) return;
  report_us_ = now_us + options_.heartbeat_us;
  if (!runs) return;
  if (const auto report = Now(now_us)) scheduler_.Send(*report);
}

bool BlockedWaits::IsAbout(const wire::Deadlock& message, int64_t now_us) const {
  const auto report = Now(now_us);
  return report && report->serial == message.serial;
}

}  // namespace cairn::client
