// Shares: bytes are moved and primaries handed over until each server has its own (rule 46).
#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <set>
#include <tuple>

#include "scheduler/planner.h"

namespace cairn::scheduler {
namespace {

// Nothing is moved while every server's bytes are so near to its share.
constexpr double kSlack = 0.05;
// Of twice the difference of two servers: a move of more would hardly even them out.
constexpr double kMostOfDifference = 0.9;

}  // namespace

// The slot that evens two servers out best; where they are far apart one of average size, so that
// number and size are spread alike.
std::optional<Planner::Move> Planner::BestMoveFrom(const Server& from,
                                                   const std::vector<size_t>& lightest_first, double mean) {
  std::optional<Move> best;
  const double share = static_cast<double>(d_.state.slots.size()) * from.weight / weights_;
  const bool has_primaries_to_spare = from.primaries > share;
  for (uint32_t slot : settled_[at_[from.index]]) {
    const wire::SlotOwner& owner = Slot(slot);
    const bool is_primary = owner.server == from.index;
    if (!Settled(slot) || owner.backups.size() >= wire::kMaxBackups) continue;
    if (At(owner.server).copies_out >= limits_.copies_per_server) continue;
    for (size_t i : lightest_first) {
      const Server& to = servers_[i];
      const double difference = from.ratio() - to.ratio();
      if (to.ratio() >= mean) break;  // its own share is enough
      const bool owns =
          owner.server == to.index || owner.FindBackup(static_cast<uint16_t>(to.index)) != nullptr;
      if (owns || to.avoided || to.copies_in >= limits_.copies_per_server) continue;
      // One of the two must be out of its share by more than the slack.
      if (from.ratio() <= mean * (1 + kSlack) && to.ratio() >= mean * (1 - kSlack)) break;
      const double cost = Cost(slot), both = cost * (1 / from.weight + 1 / to.weight);
      if (both > kMostOfDifference * 2 * difference) break;
      const double best_size = std::min(average_, cost * difference / both);
      double off = std::abs(cost - best_size);
      if (is_primary != has_primaries_to_spare) off += average_ / 4;
      if (!best || off < best->off) best = Move{slot, i, off};
      break;
    }
  }
  return best;
}

void Planner::MoveBytes() {
  std::vector<size_t> order;
  double sum = 0;
  for (size_t i = 0; i < servers_.size(); ++i)
    if (servers_[i].stays) {
      order.push_back(i);
      sum += servers_[i].load;
    }
  if (order.size() <= wanted_) return;  // everybody has everything
  const double mean = sum / weights_;
  settled_.resize(servers_.size());
  for (uint32_t slot = 0; slot < d_.state.slots.size(); ++slot) {
    if (!Settled(slot)) continue;
    settled_[at_[Slot(slot).server]].push_back(slot);
    for (const wire::Backup& backup : Slot(slot).backups) settled_[at_[backup.server]].push_back(slot);
  }
  std::set<size_t> tried;  // without success: what is begun meanwhile makes it no better for them
  for (bool moved = true; moved;) {
    moved = false;
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::tuple(servers_[a].ratio(), a) < std::tuple(servers_[b].ratio(), b);
    });
    const bool even = servers_[order.front()].ratio() >= mean * (1 - kSlack) &&
                      servers_[order.back()].ratio() <= mean * (1 + kSlack);
    if (even) return;
    for (auto from = order.rbegin(); from != order.rend() && !moved; ++from) {
      if (servers_[*from].ratio() <= mean) break;
      if (tried.count(*from) > 0) continue;
      const auto move = BestMoveFrom(servers_[*from], order, mean);
      if (!move) {
        tried.insert(*from);
        continue;
      }
      BeginCopy(move->slot, servers_[move->to]);
      d_.moving_from[move->slot] = static_cast<uint16_t>(servers_[*from].index);
      servers_[*from].load -= Cost(move->slot);
      moved = true;
    }
  }
}

void Planner::MovePrimaries() {
  if (wanted_ < 2) return;  // a primary moves with its bytes
  std::vector<size_t> order;
  for (size_t i = 0; i < servers_.size(); ++i)
    if (servers_[i].stays) order.push_back(i);
  auto now = [&](size_t i) { return servers_[i].primaries / servers_[i].weight; };
  auto with_one_more = [&](size_t i) { return (servers_[i].primaries + 1) / servers_[i].weight; };
  Edges edges;
  std::set<size_t> tried;  // without success
  for (bool moved = true; moved;) {
    moved = false;
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return std::tuple(now(b), a) < std::tuple(now(a), b); });
    double least = with_one_more(order.front());
    for (size_t i : order) least = std::min(least, with_one_more(i));
    if (now(order.front()) <= least) return;
    if (edges.empty()) edges = PossibleHandovers();
    for (size_t i = 0; i < order.size() && now(order[i]) > least && !moved; ++i) {
      if (tried.count(order[i]) > 0) continue;
      moved = MoveOnePrimary(order[i], edges);
      if (!moved) tried.insert(order[i]);
    }
  }
}

Planner::Edges Planner::PossibleHandovers() {
  Edges edges;
  for (uint32_t slot = 0; slot < d_.state.slots.size(); ++slot) {
    const wire::SlotOwner& owner = Slot(slot);
    if (!Settled(slot)) continue;
    for (const wire::Backup& backup : owner.backups)
      if (!At(backup.server).avoided) edges[at_[owner.server]][at_[backup.server]].push_back(slot);
  }
  return edges;
}

// One primary less here, and one more at a server that is better off with it: directly, or by a chain
// of handovers where the two share no slot.
bool Planner::MoveOnePrimary(size_t from, Edges& edges) {
  const double here = servers_[from].primaries / servers_[from].weight;
  std::map<size_t, size_t> came_from = {{from, from}};
  std::deque<size_t> reached = {from};
  while (!reached.empty()) {
    const size_t at = reached.front();
    reached.pop_front();
    if ((servers_[at].primaries + 1) / servers_[at].weight < here) {
      for (size_t step = at; step != from; step = came_from[step])
        HandOver(edges[came_from[step]][step].back(), servers_[step].index);
      return true;
    }
    if (servers_[at].handing_over >= limits_.handovers_per_server) continue;
    for (auto& [next, slots] : edges[at]) {
      while (!slots.empty() && !Settled(slots.back())) slots.pop_back();  // handed over already
      if (!slots.empty() && came_from.emplace(next, at).second) reached.push_back(next);
    }
  }
  return false;
}

}  // namespace cairn::scheduler
