// Who is awaited for what, in the words that users read while they wait. Worked out when something that it
// is made of has changed, not for every heartbeat. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "scheduler/core/barriers.h"
#include "scheduler/core/journal.h"
#include "scheduler/core/presence.h"
#include "scheduler/core/view_reports.h"

namespace cairn::scheduler {

class Awaiting {
 public:
  Awaiting(const Journal& journal, const Presence& presence, const Barriers& barriers,
           const ViewReports& views)
      : journal_(journal), presence_(presence), barriers_(barriers), views_(views) {}

  const std::string& Text();
  uint32_t blocked_slots() const { return blocked_slots_; }  // as of the last Text()

 private:
  std::string ToForm() const;
  std::string WhileRunning() const;
  std::string Owners() const;

  const Journal& journal_;
  const Presence& presence_;
  const Barriers& barriers_;
  const ViewReports& views_;
  std::string text_;
  uint32_t blocked_slots_ = 0;
  // What text_ is of: how often each of its sources had changed.
  std::optional<std::array<uint64_t, 4>> text_of_;
};

}  // namespace cairn::scheduler
