#include "scheduler/placement/balance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace cairn::scheduler {
namespace {

using Ranked = std::set<std::pair<double, size_t>>;  // by a number, then by place in Plan::servers()

// Of twice the difference of two servers: a move of more would hardly even them out.
constexpr double kMostOfDifference = 0.9;

class ByteMoves {
 public:
  explicit ByteMoves(Plan& plan) : plan_(plan) {}
  void Run();

 private:
  struct Candidate {  // a settled slot that might be moved
    double cost = 0;
    uint32_t slot = 0;
    std::array<uint16_t, wire::kMaxBackups> owners{};  // as many as are wanted, the primary first
  };
  struct Move {
    uint32_t slot = 0;
    size_t to = 0;
    double off = 0;  // how far its size is from the best, in bytes
  };
  void FindCandidates();
  std::optional<Move> BestFrom(const Plan::Server& from, const Ranked& takers, double mean) const;

  Plan& plan_;
  std::vector<std::vector<Candidate>> candidates_;  // by owner, as they were before any move
  std::vector<bool> moved_;                         // by slot, since then
};

class PrimaryMoves {
 public:
  explicit PrimaryMoves(Plan& plan) : plan_(plan) {}
  void Run();

 private:
  struct Link {  // slots that one server could hand over to another
    size_t to = 0;
    std::vector<uint32_t> slots;
  };
  struct Step {  // a handover
    uint32_t slot = 0;
    size_t to = 0;
  };
  void FindPossible();
  std::vector<Step> PathFrom(size_t from);

  Plan& plan_;
  std::vector<std::vector<Link>> links_;  // by the server that hands over, in the order of the others
  std::vector<double> in_vain_;
  std::vector<size_t> came_from_;
};

// The slot that evens two servers out best; where they are far apart one of average size, so that
// number and size are spread alike. `takers`: those below the mean that may be copied to, lightest first.
std::optional<ByteMoves::Move> ByteMoves::BestFrom(const Plan::Server& from, const Ranked& takers,
                                                   double mean) const {
  std::optional<Move> best;
  const double share = static_cast<double>(plan_.slots()) * from.weight / plan_.weights();
  const bool has_primaries_to_spare = from.primaries > share;
  for (const Candidate& candidate : candidates_[plan_.PlaceOf(from.index)]) {
    if (moved_[candidate.slot]) continue;
    const bool is_primary = candidate.owners[0] == from.index;
    if (plan_.At(candidate.owners[0]).copies_out >= plan_.limits().copies_per_server) continue;
    const auto taker = std::find_if(takers.begin(), takers.end(), [&](const auto& ranked) {
      const auto index = static_cast<uint16_t>(plan_.servers()[ranked.second].index);
      const auto end = candidate.owners.begin() + plan_.wanted();
      return std::find(candidate.owners.begin(), end, index) == end;
    });
    if (taker == takers.end()) continue;
    const Plan::Server& to = plan_.servers()[taker->second];
    // One of the two must be out of its share by more than the slack.
    if (from.ratio() <= mean * (1 + Plan::kSlack) && to.ratio() >= mean * (1 - Plan::kSlack)) continue;
    const double difference = from.ratio() - to.ratio();
    const double cost = candidate.cost, both = cost * (1 / from.weight + 1 / to.weight);
    if (both > kMostOfDifference * 2 * difference) continue;
    const double best_size = std::min(plan_.average_cost(), cost * difference / both);
    double off = std::abs(cost - best_size);
    if (is_primary != has_primaries_to_spare) off += plan_.average_cost() / 4;
    if (!best || off < best->off) best = Move{candidate.slot, taker->second, off};
  }
  return best;
}

// All the slots are looked at for each move, so what is asked of them lies side by side.
void ByteMoves::FindCandidates() {
  candidates_.resize(plan_.servers().size());
  moved_.resize(plan_.slots());
  if (plan_.wanted() > wire::kMaxBackups) return;  // none can have one owner more for a while
  for (uint32_t slot = 0; slot < plan_.slots(); ++slot) {
    if (!plan_.Settled(slot)) continue;
    const wire::SlotOwner& owner = plan_.Slot(slot);
    Candidate candidate{plan_.Cost(slot), slot, {owner.server}};
    for (size_t i = 0; i < owner.backups.size(); ++i) candidate.owners[i + 1] = owner.backups[i].server;
    for (uint32_t i = 0; i < plan_.wanted(); ++i)
      candidates_[plan_.PlaceOf(candidate.owners[i])].push_back(candidate);
  }
}

void ByteMoves::Run() {
  double sum = 0;
  size_t staying = 0;
  for (const Plan::Server& server : plan_.servers()) {
    if (!server.stays) continue;
    sum += server.load;
    ++staying;
  }
  if (staying <= plan_.wanted()) return;  // everybody has everything
  const double mean = sum / plan_.weights();
  FindCandidates();
  Ranked all, givers, takers;
  auto enter = [&](size_t i) {
    const Plan::Server& server = plan_.servers()[i];
    const std::pair<double, size_t> key(server.ratio(), i);
    all.insert(key);
    if (server.ratio() > mean) givers.insert(key);
    if (server.ratio() < mean && !server.avoided && server.copies_in < plan_.limits().copies_per_server)
      takers.insert(key);
  };
  auto leave = [&](size_t i) {
    for (Ranked* ranked : {&all, &givers, &takers}) ranked->erase({plan_.servers()[i].ratio(), i});
  };
  for (size_t i = 0; i < plan_.servers().size(); ++i)
    if (plan_.servers()[i].stays) enter(i);
  while (!givers.empty()) {
    const bool even =
        all.begin()->first >= mean * (1 - Plan::kSlack) && all.rbegin()->first <= mean * (1 + Plan::kSlack);
    if (even) return;
    const size_t from = givers.rbegin()->second;
    const auto move = BestFrom(plan_.servers()[from], takers, mean);
    if (!move) {
      // What is begun meanwhile makes it no better for this one.
      givers.erase(std::prev(givers.end()));
      continue;
    }
    leave(from);
    leave(move->to);
    plan_.BeginMove(move->slot, from, move->to);
    moved_[move->slot] = true;
    enter(from);
    enter(move->to);
  }
}

void PrimaryMoves::Run() {
  if (plan_.wanted() < 2) return;  // a primary moves with its bytes
  auto now = [&](size_t i) { return plan_.servers()[i].primaries / plan_.servers()[i].weight; };
  auto with_one_more = [&](size_t i) {
    return (plan_.servers()[i].primaries + 1) / plan_.servers()[i].weight;
  };
  Ranked most;  // by their primaries, the most first; without those that found nobody to give to
  Ranked least;
  std::vector<bool> tried(plan_.servers().size());
  auto enter = [&](size_t i) {
    if (!tried[i]) most.insert({-now(i), i});
    least.insert({with_one_more(i), i});
  };
  auto leave = [&](size_t i) {
    most.erase({-now(i), i});
    least.erase({with_one_more(i), i});
  };
  for (size_t i = 0; i < plan_.servers().size(); ++i)
    if (plan_.servers()[i].stays) enter(i);
  bool found = false;
  while (!most.empty() && -most.begin()->first > least.begin()->first) {
    if (!std::exchange(found, true)) FindPossible();
    const size_t from = most.begin()->second;
    const auto path = PathFrom(from);
    if (path.empty()) {
      tried[from] = true;
      most.erase(most.begin());
      continue;
    }
    leave(from);
    leave(path.front().to);
    for (const Step& step : path) plan_.HandOver(step.slot, plan_.servers()[step.to].index);
    enter(from);
    enter(path.front().to);
  }
}

void PrimaryMoves::FindPossible() {
  links_.assign(plan_.servers().size(), {});
  in_vain_.assign(plan_.servers().size(), -1);
  came_from_.resize(plan_.servers().size());
  std::vector<std::pair<size_t, uint32_t>> there;  // to, slot
  std::vector<std::vector<uint32_t>> led(plan_.servers().size());
  for (uint32_t slot = 0; slot < plan_.slots(); ++slot)
    if (plan_.Settled(slot)) led[plan_.PlaceOf(plan_.Slot(slot).server)].push_back(slot);
  for (size_t from = 0; from < plan_.servers().size(); ++from) {
    there.clear();
    for (uint32_t slot : led[from])
      for (const wire::Backup& backup : plan_.Slot(slot).backups)
        if (!plan_.At(backup.server).avoided) there.emplace_back(plan_.PlaceOf(backup.server), slot);
    std::sort(there.begin(), there.end());
    for (const auto& [to, slot] : there) {
      if (links_[from].empty() || links_[from].back().to != to) links_[from].push_back({to, {}});
      links_[from].back().slots.push_back(slot);
    }
  }
}

// The handovers, last one first, that leave one primary less here and one more at a server that is better
// off with it: one, or a chain where the two share no slot. Empty if there is none.
//
// A server from which the search has found nobody (in_vain_: by which number of primaries) is not searched
// from again for so many or fewer. Handovers only become fewer in the meantime, and whoever gives a primary
// away then has no fewer than the one that was searched for, so nobody whom it reaches becomes one.
std::vector<PrimaryMoves::Step> PrimaryMoves::PathFrom(size_t from) {
  const double here = plan_.servers()[from].primaries / plan_.servers()[from].weight;
  if (in_vain_[from] >= here) return {};
  constexpr size_t kNobody = SIZE_MAX;
  std::fill(came_from_.begin(), came_from_.end(), kNobody);
  came_from_[from] = from;
  std::vector<size_t> reached = {from};
  for (size_t next = 0; next < reached.size(); ++next) {
    const size_t at = reached[next];
    if ((plan_.servers()[at].primaries + 1) / plan_.servers()[at].weight < here) {
      std::vector<Step> path;
      for (size_t step = at; step != from; step = came_from_[step]) {
        const auto& links = links_[came_from_[step]];
        const auto link =
            std::find_if(links.begin(), links.end(), [&](const Link& l) { return l.to == step; });
        path.push_back({link->slots.back(), step});
      }
      return path;
    }
    if (plan_.servers()[at].handing_over >= plan_.limits().handovers_per_server) continue;
    for (Link& link : links_[at]) {
      // Those that are handed over already.
      while (!link.slots.empty() && !plan_.Settled(link.slots.back())) link.slots.pop_back();
      if (link.slots.empty() || came_from_[link.to] != kNobody || in_vain_[link.to] >= here) continue;
      came_from_[link.to] = at;
      reached.push_back(link.to);
    }
  }
  for (size_t server : reached) in_vain_[server] = std::max(in_vain_[server], here);
  return {};
}

}  // namespace

void MoveBytes(Plan& plan) { ByteMoves(plan).Run(); }
void MovePrimaries(Plan& plan) { PrimaryMoves(plan).Run(); }

}  // namespace cairn::scheduler
