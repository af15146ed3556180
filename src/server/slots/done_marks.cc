#include "server/slots/done_marks.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/planted.h"

namespace cairn::server {

void DoneMarks::SetMembers(std::vector<Member> members) {
  for (Member& member : members) {
    auto old = std::find_if(members_.begin(), members_.end(),
                            [&](const Member& m) { return m.incarnation == member.incarnation; });
    if (old == members_.end()) continue;
    CAIRN_CHECK((member.rank == old->rank && member.first == old->first) || CAIRN_ANY_BUG);
    member.mark = std::move(old->mark);
    member.decided_round = old->decided_round;
    member.decision = old->decision;
  }
  std::sort(members.begin(), members.end(), [](const Member& a, const Member& b) {
    return std::tie(a.rank, a.incarnation) < std::tie(b.rank, b.incarnation);
  });
  members_ = std::move(members);
}

const Member* DoneMarks::Find(Incarnation incarnation) const {
  for (const Member& member : members_)
    if (member.incarnation == incarnation) return &member;
  return nullptr;
}

void DoneMarks::Record(Incarnation incarnation, Round round, const wire::PushParams& params,
                       std::span<const std::byte> bitmap) {
  for (Member& member : members_) {
    if (member.incarnation != incarnation) continue;
    CAIRN_CHECK(member.AwaitedIn(round));
    DoneMark& mark = member.mark;
    if (mark.given && mark.round >= round) return;  // a copy
    mark.given = true;
    mark.round = round;
    mark.terms = RoundTerms::Of(params);
    mark.joined = params.has(wire::kParamJoined);
    mark.not_finite = params.has(wire::kParamNotFinite) && !mark.joined;
    mark.weight = mark.joined ? 0 : params.weight;
    if (mark.joined) bitmap = {};
    mark.bitmap.assign(bitmap.begin(), bitmap.end());
    return;
  }
}

void DoneMarks::Decide(Incarnation incarnation, Round round, const Decision& decision) {
  for (Member& member : members_) {
    if (member.incarnation != incarnation) continue;
    if (member.decision && member.decided_round >= round) return;  // a copy
    member.decided_round = round;
    member.decision = decision;
    return;
  }
}

bool DoneMarks::Lacks(Round round) const {
  return std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
    return member.AwaitedIn(round) && !member.MarkedFor(round);
  });
}

bool DoneMarks::LacksDecision(Round round) const {
  return std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
    return member.DecidesIn(round) && !member.DecidedFor(round);
  });
}

}  // namespace cairn::server
