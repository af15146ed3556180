#include "client/links/unanswered_frames.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"
#include "wire/data.h"

namespace cairn::client {

void UnansweredFrames::Add(uint64_t id, Outgoing frame) { queue_.Add(id, std::move(frame)); }

void UnansweredFrames::Insert(uint64_t id, Outgoing frame) {
  frame.again = false;
  // Frames behind it may have been sent: it is sent by ShardLink::Resume. Those of its slots come all from
  // one link and in order, so nothing else has to be sent again.
  if (IsSent(id)) {
    ++(frame.parks ? parked_ : counted_);
    frame.again = true;
  }
  queue_.Insert(id, std::move(frame));
}

Outgoing UnansweredFrames::Take(Iterator it) {
  if (IsSent(it->first)) {
    uint32_t& count = it->second.parks ? parked_ : counted_;
    CAIRN_CHECK(count > 0);
    --count;
  }
  return queue_.Take(it);
}

Outgoing UnansweredFrames::TakeAnswered(Iterator it, int64_t now_us) {
  if (!it->second.parks && OldestCounted(it)) oldest_us_ = now_us;
  return Take(it);
}

void UnansweredFrames::ForgetSent() {
  queue_.SendAgainBehind(0);
  counted_ = parked_ = 0;
}

bool UnansweredFrames::any_sent_before() const {
  return std::any_of(queue_.begin(), queue_.end(), [](const auto& item) { return item.second.sends > 0; });
}

bool UnansweredFrames::any_marked() const {
  return std::any_of(queue_.begin(), queue_.end(), [](const auto& item) { return item.second.again; });
}

void UnansweredFrames::NoteSent(bool parks, int64_t now_us) {
  if (parks) {
    ++parked_;
  } else if (counted_++ == 0) {
    oldest_us_ = now_us;
  }
}

void UnansweredFrames::NoteKept(Iterator it, int64_t now_us) {
  it->second.heard_us = now_us;
  if (!it->second.parks) oldest_us_ = now_us;
}

void UnansweredFrames::NoteProgress(int64_t now_us) {
  oldest_us_ = now_us;
  for (auto& [id, frame] : queue_) {
    if (!IsSent(id)) break;
    frame.heard_us = now_us;
  }
}

bool UnansweredFrames::Overdue(int64_t limit_us, int64_t parked_limit_us, int64_t now_us) const {
  if (counted_ > 0 && now_us - oldest_us_ >= limit_us) return true;
  if (parked_ == 0) return false;
  for (const auto& [id, frame] : queue_) {
    if (!IsSent(id)) break;
    if (frame.parks && now_us - frame.heard_us >= parked_limit_us) return true;
  }
  return false;
}

bool UnansweredFrames::Keeps(uint32_t slot, uint64_t number) const {
  return std::any_of(queue_.begin(), queue_.end(), [&](const auto& item) {
    if (item.second.kind != Request::Kind::kPush) return false;
    const std::span<const wire::SlotEntry> entries = wire::MutableEntries(*item.second.frame);
    const auto at = std::lower_bound(entries.begin(), entries.end(), slot,
                                     [](const wire::SlotEntry& entry, uint32_t s) { return entry.slot < s; });
    return at != entries.end() && at->slot == slot && at->number == number;
  });
}

bool UnansweredFrames::OldestCounted(Queue::ConstIterator it) const {
  return std::all_of(queue_.begin(), it, [](const auto& earlier) { return earlier.second.parks; });
}

}  // namespace cairn::client
