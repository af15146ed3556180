// Shares: bytes are moved and primaries handed over until each server has its own (rule 46). Asked for
// a thousand servers with every record, so nothing is looked at again that can't have changed;
// balance_reference.h says the same in the plain way.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/placement/planner.h"

namespace cairn::scheduler {
namespace {

using Ranked = std::set<std::pair<double, size_t>>;  // by a number, then by place in servers_

}  // namespace

// The slot that evens two servers out best; where they are far apart one of average size, so that
// number and size are spread alike. `takers`: those below the mean that may be copied to, lightest first.
template <class Takers>
std::optional<Planner::Move> Planner::BestMoveFrom(const Server& from, const Takers& takers, double mean) {
  std::optional<Move> best;
  const double share = static_cast<double>(d_.state.slots.size()) * from.weight / weights_;
  const bool has_primaries_to_spare = from.primaries > share;
  for (const Candidate& candidate : candidates_[at_[from.index]]) {
    if (moved_[candidate.slot]) continue;
    const bool is_primary = candidate.owners[0] == from.index;
    if (At(candidate.owners[0]).copies_out >= limits_.copies_per_server) continue;
    const auto taker = std::find_if(takers.begin(), takers.end(), [&](const auto& ranked) {
      const auto index = static_cast<uint16_t>(servers_[ranked.second].index);
      const auto end = candidate.owners.begin() + wanted_;
      return std::find(candidate.owners.begin(), end, index) == end;
    });
    if (taker == takers.end()) continue;
    const Server& to = servers_[taker->second];
    // One of the two must be out of its share by more than the slack.
    if (from.ratio() <= mean * (1 + kSlack) && to.ratio() >= mean * (1 - kSlack)) continue;
    const double difference = from.ratio() - to.ratio();
    const double cost = candidate.cost, both = cost * (1 / from.weight + 1 / to.weight);
    if (both > kMostOfDifference * 2 * difference) continue;
    const double best_size = std::min(average_, cost * difference / both);
    double off = std::abs(cost - best_size);
    if (is_primary != has_primaries_to_spare) off += average_ / 4;
    if (!best || off < best->off) best = Move{candidate.slot, taker->second, off};
  }
  return best;
}

// All the slots are looked at for each move, so what is asked of them lies side by side.
void Planner::FindCandidates() {
  candidates_.resize(servers_.size());
  moved_.resize(d_.state.slots.size());
  if (wanted_ > wire::kMaxBackups) return;  // none can have one owner more for a while
  for (uint32_t slot = 0; slot < d_.state.slots.size(); ++slot) {
    if (!Settled(slot)) continue;
    const wire::SlotOwner& owner = Slot(slot);
    Candidate candidate{Cost(slot), slot, {owner.server}};
    for (size_t i = 0; i < owner.backups.size(); ++i) candidate.owners[i + 1] = owner.backups[i].server;
    for (uint32_t i = 0; i < wanted_; ++i) candidates_[at_[candidate.owners[i]]].push_back(candidate);
  }
}

void Planner::MoveBytes() {
  double sum = 0;
  size_t staying = 0;
  for (const Server& server : servers_) {
    if (!server.stays) continue;
    sum += server.load;
    ++staying;
  }
  if (staying <= wanted_) return;  // everybody has everything
  const double mean = sum / weights_;
  FindCandidates();
  Ranked all, givers, takers;
  auto enter = [&](size_t i) {
    const Server& server = servers_[i];
    const std::pair<double, size_t> key(server.ratio(), i);
    all.insert(key);
    if (server.ratio() > mean) givers.insert(key);
    if (server.ratio() < mean && !server.avoided && server.copies_in < limits_.copies_per_server)
      takers.insert(key);
  };
  auto leave = [&](size_t i) {
    for (Ranked* ranked : {&all, &givers, &takers}) ranked->erase({servers_[i].ratio(), i});
  };
  for (size_t i = 0; i < servers_.size(); ++i)
    if (servers_[i].stays) enter(i);
  while (!givers.empty()) {
    const bool even =
        all.begin()->first >= mean * (1 - kSlack) && all.rbegin()->first <= mean * (1 + kSlack);
    if (even) return;
    const size_t from = givers.rbegin()->second;
    const auto move = BestMoveFrom(servers_[from], takers, mean);
    if (!move) {
      // What is begun meanwhile makes it no better for this one.
      givers.erase(std::prev(givers.end()));
      continue;
    }
    leave(from);
    leave(move->to);
    BeginMove(move->slot, servers_[from], servers_[move->to]);
    moved_[move->slot] = true;
    enter(from);
    enter(move->to);
  }
}

void Planner::MovePrimaries() {
  if (wanted_ < 2) return;  // a primary moves with its bytes
  auto now = [&](size_t i) { return servers_[i].primaries / servers_[i].weight; };
  auto with_one_more = [&](size_t i) { return (servers_[i].primaries + 1) / servers_[i].weight; };
  Ranked most;  // by their primaries, the most first; without those that found nobody to give to
  Ranked least;
  std::vector<bool> tried(servers_.size());
  auto enter = [&](size_t i) {
    if (!tried[i]) most.insert({-now(i), i});
    least.insert({with_one_more(i), i});
  };
  auto leave = [&](size_t i) {
    most.erase({-now(i), i});
    least.erase({with_one_more(i), i});
  };
  for (size_t i = 0; i < servers_.size(); ++i)
    if (servers_[i].stays) enter(i);
  bool found = false;
  while (!most.empty() && -most.begin()->first > least.begin()->first) {
    if (!std::exchange(found, true)) FindPossibleHandovers();
    const size_t from = most.begin()->second;
    const auto path = PathForOnePrimary(from);
    if (path.empty()) {
      tried[from] = true;
      most.erase(most.begin());
      continue;
    }
    leave(from);
    leave(path.front().to);
    for (const Step& step : path) HandOver(step.slot, servers_[step.to].index);
    enter(from);
    enter(path.front().to);
  }
}

void Planner::FindPossibleHandovers() {
  links_.assign(servers_.size(), {});
  in_vain_.assign(servers_.size(), -1);
  came_from_.resize(servers_.size());
  std::vector<std::pair<size_t, uint32_t>> there;  // to, slot
  std::vector<std::vector<uint32_t>> led(servers_.size());
  for (uint32_t slot = 0; slot < d_.state.slots.size(); ++slot)
    if (Settled(slot)) led[at_[Slot(slot).server]].push_back(slot);
  for (size_t from = 0; from < servers_.size(); ++from) {
    there.clear();
    for (uint32_t slot : led[from])
      for (const wire::Backup& backup : Slot(slot).backups)
        if (!At(backup.server).avoided) there.emplace_back(at_[backup.server], slot);
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
std::vector<Planner::Step> Planner::PathForOnePrimary(size_t from) {
  const double here = servers_[from].primaries / servers_[from].weight;
  if (in_vain_[from] >= here) return {};
  constexpr size_t kNobody = SIZE_MAX;
  std::fill(came_from_.begin(), came_from_.end(), kNobody);
  came_from_[from] = from;
  std::vector<size_t> reached = {from};
  for (size_t next = 0; next < reached.size(); ++next) {
    const size_t at = reached[next];
    if ((servers_[at].primaries + 1) / servers_[at].weight < here) {
      std::vector<Step> path;
      for (size_t step = at; step != from; step = came_from_[step]) {
        const auto& links = links_[came_from_[step]];
        const auto link =
            std::find_if(links.begin(), links.end(), [&](const Link& l) { return l.to == step; });
        path.push_back({link->slots.back(), step});
      }
      return path;
    }
    if (servers_[at].handing_over >= limits_.handovers_per_server) continue;
    for (Link& link : links_[at]) {
      // Those that are handed over already.
      while (!link.slots.empty() && !Settled(link.slots.back())) link.slots.pop_back();
      if (link.slots.empty() || came_from_[link.to] != kNobody || in_vain_[link.to] >= here) continue;
      came_from_[link.to] = at;
      reached.push_back(link.to);
    }
  }
  for (size_t server : reached) in_vain_[server] = std::max(in_vain_[server], here);
  return {};
}

}  // namespace cairn::scheduler
