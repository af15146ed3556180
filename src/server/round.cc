#include "server/round.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
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
  rows.Stage(contribution.keys, contribution.values, contribution.weight);
  contribution.folded = true;
  contribution.keys = {};
  contribution.values = {};
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

std::vector<uint32_t> SlotRound::MissingRanks(SlotId slot, const DoneMarks& marks) const {
  std::vector<uint32_t> missing;
  for (const Member& member : marks.members())
    if (member.AwaitedIn(open_) && !MarkCounts(slot, member)) missing.push_back(member.rank.value);
  return missing;
}

bool SlotRound::MayClose(SlotId slot, const DoneMarks& marks, Round latest_start) const {
  bool reason = !contributions_.empty() || open_ < latest_start;
  for (const Member& member : marks.members()) {
    if (!member.AwaitedIn(open_)) continue;
    if (!MarkCounts(slot, member)) return false;
    reason = true;
  }
  return reason;
}

void SlotRound::SumWeights(const DoneMarks& marks, bool want_contributors, Closed* closed) const {
  for (const Member& member : marks.members()) {
    if (!member.AwaitedIn(open_)) continue;
    const Contribution* mine = Find(member.rank, member.incarnation);
    const bool refused = mine != nullptr && !mine->refused.ok();
    double weight = refused ? 0 : member.mark.weight;
    if (CAIRN_BUG(kDivisorByGradient) && mine == nullptr) weight = 0;
    closed->divisor += weight;
    if (want_contributors) {
      closed->contributors.push_back({member.incarnation, member.rank, weight, /*live=*/true,
                                      /*gradient=*/mine != nullptr && !refused, refused});
    }
  }
  for (const Contribution& c : contributions_) {
    if (marks.Find(c.incarnation) != nullptr) continue;
    const bool refused = !c.refused.ok();
    const double weight = refused ? 0 : c.weight;
    if (!CAIRN_BUG(kDeadWeightLost)) closed->divisor += weight;
    if (want_contributors)
      closed->contributors.push_back({c.incarnation, c.rank, weight, /*live=*/false, !refused, refused});
  }
}

SlotRound::Closed SlotRound::Close(const wire::TableInfo& table, const DoneMarks& marks,
                                   table::SlotTable& rows, bool want_contributors) {
  Closed closed;
  SumWeights(marks, want_contributors, &closed);
  closed.outcome = CompareHyper(table, open_, marks, contributions_, &closed.hyper);
  if (closed.outcome.ok() && closed.divisor > 0) {
    for (Contribution& c : contributions_)
      if (!c.folded) Fold(c, rows);
    if (rows.staged()) rows.ApplyStaged(closed.hyper, closed.divisor);
  } else if (rows.staged()) {
    rows.DropStaged();
  }
  StartNext(closed.outcome);
  return closed;
}

void SlotRound::StartNext(const Status& outcome) {
  last_outcome_ = outcome;
  last_refused_.clear();
  for (const Contribution& c : contributions_)
    if (!c.refused.ok()) last_refused_.push_back({c.incarnation, c.refused});
  contributions_.clear();
  unfolded_ = 0;
  open_ = open_.Next();
}

Status SlotRound::OutcomeFor(Incarnation incarnation, Round round) const {
  if (round.Next() != open_) return Status::Ok();
  if (!last_outcome_.ok()) return last_outcome_;
  for (const RefusedPart& part : last_refused_)
    if (part.incarnation == incarnation) return part.why;
  return Status::Ok();
}

namespace {

struct GivenHyper {
  Rank rank;
  Hyper hyper;
};

// By bits: a NaN must not make a worker differ from itself.
bool SameBits(const Hyper& a, const Hyper& b) {
  return std::memcmp(&a.lr, &b.lr, sizeof(a.lr)) == 0 &&
         std::memcmp(&a.weight_decay, &b.weight_decay, sizeof(a.weight_decay)) == 0;
}

std::string Words(const GivenHyper& given, bool lr_differs) {
  char text[96];
  std::snprintf(text, sizeof(text), "rank %u has %s %g", given.rank.value, lr_differs ? "lr" : "weight_decay",
                static_cast<double>(lr_differs ? given.hyper.lr : given.hyper.weight_decay));
  return text;
}

}  // namespace

Status CompareHyper(const wire::TableInfo& table, Round round, const DoneMarks& marks,
                    const std::vector<Contribution>& contributions, Hyper* hyper) {
  constexpr size_t kMostNamed = 4;  // ranks that the text names besides the first
  std::optional<GivenHyper> first;
  std::vector<GivenHyper> others;
  auto look = [&](Rank rank, const Hyper& given) {
    if (!first) {
      first = GivenHyper{rank, given};
    } else if (!SameBits(first->hyper, given) && others.size() < kMostNamed &&
               std::none_of(others.begin(), others.end(),
                            [&](const GivenHyper& o) { return o.rank == rank; })) {
      others.push_back({rank, given});
    }
  };
  for (const Member& member : marks.members())
    if (member.AwaitedIn(round) && member.MarkedFor(round)) look(member.rank, member.mark.hyper);
  for (const Contribution& c : contributions) look(c.rank, c.hyper);
  if (first) *hyper = first->hyper;
  if (others.empty() || CAIRN_BUG(kHyperUnchecked)) return Status::Ok();

  const bool lr_differs = std::any_of(others.begin(), others.end(), [&](const GivenHyper& o) {
    return std::memcmp(&o.hyper.lr, &first->hyper.lr, sizeof(float)) != 0;
  });
  std::string text = "round " + std::to_string(round.value) + " of table \"" + table.spec.name +
                     "\": " + Words(*first, lr_differs);
  for (const GivenHyper& other : others) text += ", " + Words(other, lr_differs);
  return {Code::kHyperMismatch, text + ": give all workers the same"};
}

}  // namespace cairn::server
