#include "client/protocol/push_bound.h"

#include <algorithm>

#include "base/bounds.h"
#include "base/check.h"
#include "base/planted.h"
#include "client/protocol/byte_bound.h"

namespace cairn::client {

void PushBound::Add(const Waiting& one) {
  CAIRN_CHECK(one.request != 0 && !IsLaterPart(one));
  waiting_.push_back(one);
}

bool PushBound::AddLaterPart(const Waiting& one) {
  CAIRN_CHECK(one.request != 0 && IsLaterPart(one));
  const auto before = std::find_if(waiting_.rbegin(), waiting_.rend(),
                                   [&](const Waiting& other) { return other.push == one.push; });
  if (before != waiting_.rend() && !CAIRN_BUG(kPartsEarly)) {
    waiting_.insert(before.base(), one);
    return false;
  }
  under_way_ += one.bytes;
  return true;
}

bool PushBound::HasRoomFor(uint64_t bytes) const {
  return waiting_.empty() && FitsBound(under_way_, bytes, bound_);
}

void PushBound::Take(uint64_t bytes) {
  CAIRN_CHECK(HasRoomFor(bytes));
  under_way_ += bytes;
}

uint64_t PushBound::Next() {
  if (waiting_.empty()) return 0;
  const Waiting next = waiting_.front();
  if (next.numbered) {
    const uint64_t room = std::max(next.bytes, next.room);
    if (!IsLaterPart(next) && !FitsBound(under_way_, room, bound_)) {
      CAIRN_AT_BOUND(kUnackedBytes);
      return 0;
    }
    under_way_ += next.bytes;
  }
  waiting_.pop_front();
  return next.request;
}

void PushBound::Remove(uint64_t request) {
  std::erase_if(waiting_, [&](const Waiting& one) { return one.request == request; });
}

std::vector<uint64_t> PushBound::RemovePartsOf(uint64_t push) {
  std::vector<uint64_t> removed;
  std::erase_if(waiting_, [&](const Waiting& one) {
    if (one.push != push) return false;
    removed.push_back(one.request);
    return true;
  });
  return removed;
}

void PushBound::Free(uint64_t bytes) {
  CAIRN_CHECK(bytes <= under_way_);
  under_way_ -= bytes;
}

void PushBound::Clear() {
  waiting_.clear();
  under_way_ = 0;
}

}  // namespace cairn::client
