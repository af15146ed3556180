// Who takes part in a table's rounds, and the done mark that each has given for its round
// (docs/consistency.md, rules 16 and 20). Kept per table for the whole shard; what a mark means
// for a slot follows from its bitmap. A worker that dies takes its mark with it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/ids.h"
#include "cairn/types.h"

namespace cairn::server {

struct DoneMark {
  bool given = false;
  Round round;
  double weight = 0;
  Hyper hyper;
  std::vector<std::byte> bitmap;  // bit s: contributes to slot s in this round; short: the rest is 0

  bool NamesSlot(SlotId slot) const {
    const size_t byte = slot.value / 8;
    return byte < bitmap.size() && (std::to_integer<unsigned>(bitmap[byte]) >> (slot.value % 8) & 1) != 0;
  }
};

// A live worker of a view.
struct Member {
  Incarnation incarnation;
  Rank rank;
  Round first;  // the first round that it takes part in
  DoneMark mark;

  bool AwaitedIn(Round round) const { return first <= round; }
  bool MarkedFor(Round round) const { return mark.given && mark.round == round; }
};

class DoneMarks {
 public:
  // The live members now; those that stay keep their marks.
  void SetMembers(std::vector<Member> members);
  const std::vector<Member>& members() const { return members_; }  // by rank
  const Member* Find(Incarnation incarnation) const;
  // Keeps the mark if it is newer than what the member has given. Unknown members are ignored.
  void Record(Incarnation incarnation, Round round, double weight, const Hyper& hyper,
              std::span<const std::byte> bitmap);
  // Somebody who is awaited in this round has not marked it. Then no slot at this round or a later
  // one can close: marks come only when every slot has reached their round.
  bool Lacks(Round round) const;

 private:
  std::vector<Member> members_;
};

}  // namespace cairn::server
