#include "client/protocol/split_push.h"

#include <utility>

#include "base/check.h"
#include "base/planted.h"

namespace cairn::client {

bool SplitPush::BeginPart(Request& part, uint64_t trip, Numbers& numbers) {
  CAIRN_CHECK(!all_ended_);
  if (refused()) return false;
  if (CAIRN_BUG(kPartForgotten) && push_ != 0) return false;
  ++under_way_;
  if (push_ == 0) {
    trip_ = trip;
    push_ = numbers.Next();
    part.room = whole_;
  }
  part.trip = trip_;
  part.push = push_;
  return true;
}

bool SplitPush::BeginLast(Request& part, Call<void()> all_ended) {
  CAIRN_CHECK(push_ != 0 && !all_ended_);
  const bool goes = !refused();
  ++under_way_;
  all_ended_ = std::move(all_ended);
  part.trip = trip_;
  part.push = push_;
  return goes;
}

void SplitPush::Ended(const Status& how) {
  CAIRN_CHECK(under_way_ > 0);
  const bool refused = !how.ok() && how.code() != Code::kOutcomeUnknown;
  reached_ |= !refused;
  if (wrong_.ok()) wrong_ = how;
  --under_way_;
  if (all_ended_ && (under_way_ == 0 || CAIRN_BUG(kFirstPartEnds))) std::exchange(all_ended_, nullptr)();
}

Status SplitPush::outcome() const {
  if (wrong_.ok() || !reached_ || CAIRN_BUG(kPartsDenied) || wrong_.code() == Code::kOutcomeUnknown)
    return wrong_;
  return {Code::kOutcomeUnknown,
          wrong_.message() + "; other parts of this push were sent, and may have been applied"};
}

}  // namespace cairn::client
