#include "client/protocol/clocks.h"

#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "wire/control.h"

namespace cairn::client {

void Clocks::OnPushEnded(TableId table, uint64_t request) {
  if (const auto it = of_.find(table); it != of_.end()) it->second.pushes.erase(request);
}

void Clocks::EndStep(TableId table, uint64_t next_request, bool last) {
  OfTable& one = of_[table];
  const bool was_last = one.ended.empty() ? one.told.last : one.ended.back().last;
  if (was_last && !last) one.goes_on = true;
  one.ended.push_back({++one.steps, next_request, last});
}

bool Clocks::BeginAt(TableId table, Round start) {
  OfTable& one = of_[table];
  if (start.value <= one.base + one.steps) return false;
  one.base = start.value - one.steps;
  return one.tell_again = true;
}

bool Clocks::TakeQuestion(TableId table, bool joined_later) {
  OfTable& one = of_[table];
  const bool first = joined_later && !std::exchange(one.asked, true);
  return std::exchange(one.goes_on, false) || first;
}

Round Clocks::Of(TableId table) const {
  const auto it = of_.find(table);
  return it == of_.end() ? Round{0} : Round{it->second.base + it->second.steps};
}

void Clocks::OnRead(Round own, Round smallest) {
  const uint64_t behind = own > smallest ? own.value - smallest.value : 0;
  const size_t kind = std::min<size_t>(behind, wire::kStalenessKinds - 1);
  if (staleness_.size() <= kind) staleness_.resize(kind + 1);
  ++staleness_[kind];
}

Clocks::Due Clocks::DueOf(TableId table, const OfTable& one) {
  return {table, Round{one.base + one.told.steps}, one.told.last};
}

std::optional<Clocks::Due> Clocks::TakeDue() {
  for (auto& [table, one] : of_) {
    bool due = std::exchange(one.tell_again, false);
    const auto may_tell = [&](const Ended& step) {
      return one.pushes.empty() || *one.pushes.begin() >= step.next_request || CAIRN_BUG(kClockEarly);
    };
    while (!one.ended.empty() && may_tell(one.ended.front())) {
      one.told = one.ended.front();
      one.ended.pop_front();
      due = true;
    }
    if (due) return DueOf(table, one);
  }
  return std::nullopt;
}

std::vector<Clocks::Due> Clocks::told() const {
  std::vector<Due> all;
  for (const auto& [table, one] : of_)
    if (one.told.steps > 0 || one.base > 0) all.push_back(DueOf(table, one));
  return all;
}

}  // namespace cairn::client
