// What a new slot map does to a link's queue (docs/internals/consistency.md, rule 48).
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "client/links/shard_link.h"
#include "client/partition/split_frame.h"

namespace cairn::client {

std::vector<ShardLink::Moving> ShardLink::TakeMisplaced(
    const std::function<Home(const Outgoing&)>& home_of, int64_t now_us) {
  std::vector<Moving> moving;
  bool reopen = false, changed = false, stamped = false;
  for (auto it = queue_.begin(); it != queue_.end();) {
    Outgoing& frame = it->second;
    const Home home = home_of(frame);
    const bool stamps = home.here && frame.frame->header().state_version < home.stamp.value;
    if (home.here && !stamps) {
      ++it;
      continue;
    }
    changed = true;
    ForgetSlots(frame);
    if (stamps) {
      stamped = true;
      reopen |= Restamp(frame, home.stamp);
      frame.again = it->first <= sent_through_;
      ++it;
      continue;
    }
    // The caller gets his memory back when the frames that replace this one are answered: until
    // then no connection may refer to it but theirs.
    reopen |= frame.borrows && frame.frame.use_count() > 1;
    const uint64_t id = it->first;
    moving.push_back({id, TakeOut(it++, 0)});
  }
  if (changed) oldest_us_ = now_us;
  if (stamped) ++rewinds_;
  if (reopen) Reopen(now_us);
  return moving;
}

// True if a connection may still hold the old frame, which refers to the caller's memory.
bool ShardLink::Restamp(Outgoing& frame, StateVersion stamp) {
  const bool held = frame.frame.use_count() > 1;
  if (held) frame.frame = WithOwnHead(frame.frame, frame.borrows, pool_);
  frame.frame->header().state_version = stamp.value;
  Seal(*frame.frame);
  return held && frame.borrows;
}

// What was said of these slots on this connection was said under another epoch.
void ShardLink::ForgetSlots(const Outgoing& frame) {
  if (frame.kind != Request::Kind::kPush) return;
  for (const wire::SlotEntry& entry : wire::MutableEntries(*frame.frame)) {
    rewound_.erase(entry.slot);
    if (doubt_ && doubt_->slot == entry.slot) doubt_.reset();
  }
}

void ShardLink::Insert(uint64_t id, Outgoing frame) {
  CAIRN_CHECK(phase_ != Phase::kOff);
  ForgetSlots(frame);
  frame.again = false;
  // Frames behind it may have been sent: it is sent by Resume. Those of its slots come all from one
  // link and in order, so nothing else has to be sent again.
  if (id <= sent_through_) {
    ++(frame.parks ? parked_ : counted_);
    frame.again = true;
  }
  queue_.emplace(id, std::move(frame));
}

void ShardLink::Resume(int64_t now_us) {
  if (phase_ != Phase::kReady || rewind_us_ != 0) return;  // they are sent with all others, later
  // More than may be under way at a time: in order from the beginning, as far as the bound allows.
  if (counted_ > options_.max_unacked_frames) return Rewind(now_us);
  const bool any = std::any_of(queue_.begin(), queue_.end(),
                               [](const auto& item) { return item.second.again; });
  if (any) {
    oldest_us_ = now_us;
    SendMarked(now_us);
  }
  Pump(now_us);
}

}  // namespace cairn::client
