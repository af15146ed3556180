// Waits that nothing ends: as long as the program only waits, and all of its calls wait for other workers,
// the scheduler is told whom for (docs/internals/consistency.md, rule 54); it says if they wait for this one too.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/random.h"
#include "client/protocol/core.h"

namespace cairn::client {

std::optional<wire::Blocked> Core::BlockedNow(int64_t now_us) const {
  // One that leaves begins nothing more; what it has under way must end first, told to its program or not.
  const bool leaves = calls_.leaving();
  const bool waits = leaves || (options_.program_waits && options_.program_waits(now_us));
  if (!waits || start_ || !fatal_.ok() || calls_.waits_for_scheduler() || !held_.empty()) return std::nullopt;
  wire::Blocked report;
  report.incarnation = incarnation();
  report.barrier = calls_.in_barrier() ? scheduler_.barrier_count() : 0;
  report.serial = Mix64(report.barrier, 2 * next_request_ + (leaves ? 1 : 0));
  bool first = true;
  for (const auto& [id, record] : requests_) {
    // One that is held back waits for an earlier one of its table, which is among the others.
    if ((record.ended && !leaves) || (record.parks && !record.sent)) continue;
    std::vector<uint32_t> missing = record.missing_ranks;
    std::sort(missing.begin(), missing.end());
    const bool only_us = missing.size() == 1 && missing[0] == rank().value;
    if (missing.empty() || only_us) return std::nullopt;  // for a server: that will end
    if (std::exchange(first, false)) {
      report.ranks = missing;
      report.what = WhatOf(record) + (leaves ? " before it leaves" : "");
    } else {
      std::erase_if(report.ranks, [&](uint32_t r) { return !std::binary_search(missing.begin(), missing.end(), r); });
    }
    if (report.ranks.empty()) return std::nullopt;
    report.serial = Mix64(report.serial, id);
  }
  if (first && report.barrier == 0) return std::nullopt;
  for (uint32_t r : report.ranks) report.serial = Mix64(report.serial, r);
  report.serial |= 1;  // 0 is none
  return report;
}

void Core::ReportBlocked(int64_t now_us) {
  if (now_us < blocked_us_) return;
  blocked_us_ = now_us + options_.heartbeat_us;
  if (const auto report = BlockedNow(now_us)) scheduler_.Send(*report);
}

// They end as at their deadline: this worker's parts of rounds stay, it is in the barrier as before, and has
// not left.
void Core::OnDeadlock(const wire::Deadlock& message, int64_t now_us) {
  const auto report = BlockedNow(now_us);
  if (!report || report->serial != message.serial) return;
  std::vector<uint64_t> ids;
  for (const auto& [id, record] : requests_)
    if (!record.ended) ids.push_back(id);
  for (uint64_t id : ids) {
    const auto it = requests_.find(id);
    if (it == requests_.end() || it->second.ended) continue;
    deadlines_.erase({it->second.request.deadline_us, id});
    EndCall(id, message.text, now_us);
  }
  calls_.EndBarriers({Code::kDeadlineExceeded, message.text});
  calls_.EndLeave({Code::kDeadlineExceeded, message.text});
}

}  // namespace cairn::client
