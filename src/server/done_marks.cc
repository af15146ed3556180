#include "server/done_marks.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace cairn::server {

void DoneMarks::SetMembers(std::vector<Member> members) {
  for (Member& member : members) {
    auto old = std::find_if(members_.begin(), members_.end(),
                            [&](const Member& m) { return m.incarnation == member.incarnation; });
    if (old != members_.end()) member.mark = std::move(old->mark);
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

void DoneMarks::Record(Incarnation incarnation, Round round, double weight, const Hyper& hyper,
                       std::span<const std::byte> bitmap) {
  for (Member& member : members_) {
    if (member.incarnation != incarnation) continue;
    DoneMark& mark = member.mark;
    if (mark.given && mark.round >= round) return;  // a copy
    mark.given = true;
    mark.round = round;
    mark.weight = weight;
    mark.hyper = hyper;
    mark.bitmap.assign(bitmap.begin(), bitmap.end());
    return;
  }
}

bool DoneMarks::Lacks(Round round) const {
  return std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
    return member.AwaitedIn(round) && !member.MarkedFor(round);
  });
}

}  // namespace cairn::server
