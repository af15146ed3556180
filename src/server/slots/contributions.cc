#include "server/slots/contributions.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/planted.h"
#include "server/slots/closed_round.h"

namespace cairn::server {
namespace {
auto Place(const Contribution& c) { return std::tie(c.rank, c.incarnation); }
}  // namespace

const Contribution* Contributions::Find(Rank rank, Incarnation incarnation) const {
  const auto wanted = std::tie(rank, incarnation);
  auto it = std::lower_bound(all_.begin(), all_.end(), wanted,
                             [](const Contribution& c, const auto& w) { return Place(c) < w; });
  return it != all_.end() && Place(*it) == wanted ? &*it : nullptr;
}

Contribution& Contributions::Add(Contribution contribution) {
  if (!contribution.folded) ++unfolded_;
  auto at =
      std::upper_bound(all_.begin(), all_.end(), contribution,
                       [](const Contribution& a, const Contribution& b) { return Place(a) < Place(b); });
  CAIRN_CHECK(at == all_.begin() || Place(*std::prev(at)) != Place(contribution));
  return *all_.insert(at, std::move(contribution));
}

void Contributions::Remove(Rank rank, Incarnation incarnation) {
  const Contribution* it = Find(rank, incarnation);
  CAIRN_CHECK(it != nullptr && !it->folded && unfolded_ > 0);
  --unfolded_;
  all_.erase(all_.begin() + (it - all_.data()));
}

void Contributions::Clear() {
  all_.clear();
  unfolded_ = 0;
}

void Contributions::Fold(Contribution& contribution, table::SlotTable& rows) {
  CAIRN_CHECK(!contribution.folded && unfolded_ > 0);
  rows.Stage(contribution.keys, contribution.values, contribution.mask, contribution.factor);
  contribution.folded = true;
  contribution.keys = {};
  contribution.values = {};
  contribution.mask = {};
  contribution.kept.reset();
  --unfolded_;
}

void Contributions::FoldInOrder(Round round, SlotId slot, const DoneMarks& marks, table::SlotTable& rows) {
  if (unfolded_ == 0) return;
  const std::vector<Member>& members = marks.members();
  size_t m = 0;
  for (Contribution& c : all_) {
    if (c.folded) continue;
    for (; m < members.size() && members[m].rank < c.rank; ++m) {
      const Member& lower = members[m];
      if (!lower.AwaitedIn(round) || Find(lower.rank, lower.incarnation) != nullptr)
        continue;  // that one came before c
      if (!lower.MarkedFor(round) || lower.mark.NamesSlot(slot)) return;
    }
    Fold(c, rows);
  }
}

void Contributions::FoldRest(table::SlotTable& rows) {
  if (unfolded_ == 0) return;
  for (Contribution& c : all_)
    if (!c.folded) Fold(c, rows);
}

double Contributions::SumWeights(Round round, const DoneMarks& marks,
                                 std::vector<Contributor>* contributors) const {
  double sum = 0;
  for (const Member& member : marks.members()) {
    if (!member.AwaitedIn(round)) continue;
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
  for (const Contribution& c : all_) {
    if (marks.Find(c.incarnation) != nullptr) continue;
    const bool refused = !c.refused.ok();
    const double weight = refused ? 0 : c.weight;
    if (!CAIRN_BUG(kDeadWeightLost)) sum += weight;
    if (contributors != nullptr)
      contributors->push_back({c.incarnation, c.rank, weight, /*live=*/false, !refused, refused});
  }
  return sum;
}

void Contributions::Save(ByteWriter& out) const {
  out.Put(uint64_t{all_.size()});
  for (const Contribution& c : all_) {
    out.Put(c.incarnation.value);
    out.Put(c.rank.value);
    out.Put(c.weight);
    SaveStatus(c.refused, out);
  }
}

bool Contributions::Load(ByteReader& in) {
  std::pair<Rank, Incarnation> before;
  for (uint64_t n = in.GetCount(29); n > 0; --n) {
    Contribution c;
    c.incarnation = Incarnation{in.Get<uint64_t>()};
    c.rank = Rank{in.Get<uint32_t>()};
    c.weight = in.Get<double>();
    c.refused = LoadStatus(in);
    c.folded = true;
    const std::pair place(c.rank, c.incarnation);
    if (!in.ok() || place <= std::exchange(before, place)) return false;
    if (!CAIRN_BUG(kSummedContributorsLost)) Add(std::move(c));
  }
  return in.ok();
}

}  // namespace cairn::server
