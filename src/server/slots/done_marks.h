// Who takes part in a table's rounds, the done mark that each has given for its round, and what it
// has decided where that round has two phases (docs/internals/consistency.md, rules 16, 20, 32 and 34). Kept
// per table for the whole shard; what a mark means for a slot follows from its bitmap. A worker
// that dies takes its mark and its decision with it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "cairn/types.h"
#include "server/slots/round_terms.h"
#include "wire/data.h"

namespace cairn::server {

struct DoneMark {
  bool given = false;
  Round round;
  double weight = 0;
  RoundTerms terms;
  bool joined = false;            // out of data: agrees to everything; weight 0 and an empty bitmap
  bool not_finite = false;        // its gradient is not finite, so it sends none
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
  Round decided_round;
  std::optional<Decision> decision;  // of decided_round

  bool AwaitedIn(Round round) const { return first <= round; }
  bool MarkedFor(Round round) const { return mark.given && mark.round == round; }
  bool JoinedIn(Round round) const { return MarkedFor(round) && mark.joined; }
  // It is one of those who decide what becomes of this round.
  bool DecidesIn(Round round) const { return AwaitedIn(round) && !JoinedIn(round); }
  bool DecidedFor(Round round) const { return decision && decided_round == round; }
};

class DoneMarks {
 public:
  // The live members now; those that stay keep their marks and decisions.
  void SetMembers(std::vector<Member> members);
  const std::vector<Member>& members() const { return members_; }  // by rank
  const Member* Find(Incarnation incarnation) const;
  // Keeps the mark if it is newer than what the member has given. Unknown members are ignored.
  void Record(Incarnation incarnation, Round round, const wire::PushParams& params,
              std::span<const std::byte> bitmap);
  // The same for a decision.
  void Decide(Incarnation incarnation, Round round, const Decision& decision);
  // Somebody who is awaited in this round has not marked it. Then no slot at this round or a later
  // one can close: marks come only when every slot has reached their round.
  bool Lacks(Round round) const;
  // Somebody who decides in this round has not. Then no slot that is summed up in it can close,
  // and none at a later round either, as above.
  bool LacksDecision(Round round) const;

 private:
  std::vector<Member> members_;
};

}  // namespace cairn::server
