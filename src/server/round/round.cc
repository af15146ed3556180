#include "server/round/round.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "base/planted.h"

namespace cairn::server {
namespace {
auto Place(const Contribution& c) { return std::tie(c.rank, c.incarnation); }
}  // namespace

const Contribution* SlotRound::Find(Rank rank, Incarnation incarnation) const {
  const auto wanted = std::tie(rank, incarnation);
  auto it = std::lower_bound(contributions_.begin(), contributions_.end(), wanted,
                             [](const Contribution& c, const auto& w) { return Place(c) < w; });
  return it != contributions_.end() && Place(*it) == wanted ? &*it : nullptr;
}

Contribution& SlotRound::Add(Contribution contribution) {
  if (!contribution.folded) ++unfolded_;
  auto at =
      std::upper_bound(contributions_.begin(), contributions_.end(), contribution,
                       [](const Contribution& a, const Contribution& b) { return Place(a) < Place(b); });
  return *contributions_.insert(at, std::move(contribution));
}

void SlotRound::Remove(Rank rank, Incarnation incarnation) {
  const Contribution* it = Find(rank, incarnation);
  CAIRN_CHECK(it != nullptr && !it->folded);
  --unfolded_;
  contributions_.erase(contributions_.begin() + (it - contributions_.data()));
}

void SlotRound::Fold(Contribution& contribution, table::SlotTable& rows) {
  CAIRN_CHECK(!contribution.folded);
  rows.Stage(contribution.keys, contribution.values, contribution.mask, contribution.factor);
  contribution.folded = true;
  contribution.keys = {};
  contribution.values = {};
  contribution.mask = {};
  contribution.kept.reset();
  --unfolded_;
}

void SlotRound::FoldInOrder(SlotId slot, const DoneMarks& marks, table::SlotTable& rows) {
  if (unfolded_ == 0) return;
  const std::vector<Member>& members = marks.members();
  size_t m = 0;
  for (Contribution& c : contributions_) {
    if (c.folded) continue;
    for (; m < members.size() && members[m].rank < c.rank; ++m) {
      const Member& lower = members[m];
      if (!lower.AwaitedIn(open_) || Find(lower.rank, lower.incarnation) != nullptr)
        continue;  // that one came before c
      if (!lower.MarkedFor(open_) || lower.mark.NamesSlot(slot)) return;
    }
    Fold(c, rows);
  }
}

bool SlotRound::MarkCounts(SlotId slot, const Member& member) const {
  if (!member.MarkedFor(open_)) return false;
  return !member.mark.NamesSlot(slot) || CAIRN_BUG(kDonePerThread) ||
         Find(member.rank, member.incarnation) != nullptr;
}

bool SlotRound::AllMarked(SlotId slot, const DoneMarks& marks, Round latest_start) const {
  bool reason = !contributions_.empty() || open_ < latest_start;
  for (const Member& member : marks.members()) {
    if (!member.AwaitedIn(open_)) continue;
    if (!MarkCounts(slot, member)) return false;
    reason = true;
  }
  return reason;
}

std::vector<uint32_t> SlotRound::MissingRanks(SlotId slot, const DoneMarks& marks) const {
  std::vector<uint32_t> missing;
  for (const Member& member : marks.members()) {
    const bool awaited = summed_ ? member.DecidesIn(open_) && !member.DecidedFor(open_)
                                 : member.AwaitedIn(open_) && !MarkCounts(slot, member);
    if (awaited) missing.push_back(member.rank.value);
  }
  return missing;
}

double SlotRound::SumWeights(const DoneMarks& marks, std::vector<Contributor>* contributors) const {
  double sum = 0;
  for (const Member& member : marks.members()) {
    if (!member.AwaitedIn(open_)) continue;
    const Contribution* mine = Find(member.rank, member.incarnation);
    const bool refused = mine != nullptr && !mine->refused.ok();
    double weight = refused ? 0 : member.mark.weight;
    if (CAIRN_BUG(kDivisorByGradient) && mine == nullptr) weight = 0;
    sum += weight;
    if (contributors != nullptr) {
      contributors->push_back({member.incarnation, member.rank, weight, /*live=*/true,
                               /*gradient=*/mine != nullptr && !refused, refused});
    }
  }
  for (const Contribution& c : contributions_) {
    if (marks.Find(c.incarnation) != nullptr) continue;
    const bool refused = !c.refused.ok();
    const double weight = refused ? 0 : c.weight;
    if (!CAIRN_BUG(kDeadWeightLost)) sum += weight;
    if (contributors != nullptr)
      contributors->push_back({c.incarnation, c.rank, weight, /*live=*/false, !refused, refused});
  }
  return sum;
}

void SlotRound::Close(Round round, const Closed& closed, table::SlotTable& rows) {
  if (closed.counts) rows.CountRound(closed.hyper);
  if (closed.effect == Effect::kAssign) rows.AssignStaged(closed.column, closed.divisor);
  if (closed.effect == Effect::kUpdate) rows.ApplyStaged(closed.hyper, closed.divisor, closed.scale);
  if (rows.staged()) rows.DropStaged();
  last_outcome_ = closed.outcome;
  last_all_joined_ = closed.all_joined;
  last_refused_ = closed.refused;
  contributions_.clear();
  unfolded_ = 0;
  summed_.reset();
  open_ = round.Next();
}

void SlotRound::DropStaged(table::SlotTable& rows) {
  if (summed_) return;
  contributions_.clear();
  unfolded_ = 0;
  if (rows.staged()) rows.DropStaged();
}

Status SlotRound::OutcomeFor(Incarnation incarnation, Round round) const {
  if (round.Next() != open_) return Status::Ok();
  // Where nobody gave values, a worker whose own part was refused is told why.
  if (!last_outcome_.ok() && last_outcome_.code() != Code::kUnavailable) return last_outcome_;
  for (const RefusedPart& part : last_refused_)
    if (part.incarnation == incarnation) return part.why;
  return last_outcome_;
}

}  // namespace cairn::server
