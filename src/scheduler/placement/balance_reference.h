// The balancer as it reads most easily: everything is sorted and searched anew for each move. It decides
// what balance.cc decides, in quadratic time; a test holds them against each other.
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <set>
#include <tuple>

#include "scheduler/placement/plan.h"
#include "scheduler/placement/repair.h"

namespace cairn::scheduler {

class ReferencePlanner {
 public:
  static PlacementChange Place(DurableState& d, const SlotBytes& bytes, const PlacementLimits& limits) {
    return ReferencePlanner(d, bytes, limits).Run();
  }

 private:
  static constexpr double kMostOfDifference = 0.9;
  using Server = Plan::Server;
  struct Move {
    uint32_t slot = 0;
    size_t to = 0;
    double off = 0;  // how far its size is from the best, in bytes
  };
  using Edges = std::map<size_t, std::map<size_t, std::vector<uint32_t>>>;  // from, to: slots

  ReferencePlanner(DurableState& d, const SlotBytes& bytes, const PlacementLimits& limits)
      : p_(d, bytes, limits), servers_(p_.servers()), limits_(limits) {}

  PlacementChange Run() {
    if (Repair(p_)) MoveBytes();
    MovePrimaries();
    return p_.change();
  }

  // The slot that evens two servers out best; where they are far apart one of average size, so that
  // number and size are spread alike.
  std::optional<Move> BestMoveFrom(const Server& from, const std::vector<size_t>& lightest_first,
                                   double mean) {
    std::optional<Move> best;
    const double share = static_cast<double>(p_.slots()) * from.weight / p_.weights();
    const bool has_primaries_to_spare = from.primaries > share;
    for (uint32_t slot : settled_[p_.PlaceOf(from.index)]) {
      const wire::SlotOwner& owner = p_.Slot(slot);
      const bool is_primary = owner.server == from.index;
      if (!p_.Settled(slot) || owner.backups.size() >= wire::kMaxBackups) continue;
      if (p_.At(owner.server).copies_out >= limits_.copies_per_server) continue;
      for (size_t i : lightest_first) {
        const Server& to = servers_[i];
        const double difference = from.ratio() - to.ratio();
        if (to.ratio() >= mean) break;  // its own share is enough
        const bool owns =
            owner.server == to.index || owner.FindBackup(static_cast<uint16_t>(to.index)) != nullptr;
        if (owns || to.avoided || to.copies_in >= limits_.copies_per_server) continue;
        // One of the two must be out of its share by more than the slack.
        if (from.ratio() <= mean * (1 + Plan::kSlack) && to.ratio() >= mean * (1 - Plan::kSlack)) break;
        const double cost = p_.Cost(slot), both = cost * (1 / from.weight + 1 / to.weight);
        if (both > kMostOfDifference * 2 * difference) break;
        const double best_size = std::min(p_.average_cost(), cost * difference / both);
        double off = std::abs(cost - best_size);
        if (is_primary != has_primaries_to_spare) off += p_.average_cost() / 4;
        if (!best || off < best->off) best = Move{slot, i, off};
        break;
      }
    }
    return best;
  }

  void MoveBytes() {
    std::vector<size_t> order;
    double sum = 0;
    for (size_t i = 0; i < servers_.size(); ++i)
      if (servers_[i].stays) {
        order.push_back(i);
        sum += servers_[i].load;
      }
    if (order.size() <= p_.wanted()) return;  // everybody has everything
    const double mean = sum / p_.weights();
    settled_.resize(servers_.size());
    for (uint32_t slot = 0; slot < p_.slots(); ++slot) {
      if (!p_.Settled(slot)) continue;
      settled_[p_.PlaceOf(p_.Slot(slot).server)].push_back(slot);
      for (const wire::Backup& backup : p_.Slot(slot).backups)
        settled_[p_.PlaceOf(backup.server)].push_back(slot);
    }
    std::set<size_t> tried;  // without success: what is begun meanwhile makes it no better for them
    for (bool moved = true; moved;) {
      moved = false;
      std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        return std::tuple(servers_[a].ratio(), a) < std::tuple(servers_[b].ratio(), b);
      });
      const bool even = servers_[order.front()].ratio() >= mean * (1 - Plan::kSlack) &&
                        servers_[order.back()].ratio() <= mean * (1 + Plan::kSlack);
      if (even) return;
      for (auto from = order.rbegin(); from != order.rend() && !moved; ++from) {
        if (servers_[*from].ratio() <= mean) break;
        if (tried.count(*from) > 0) continue;
        const auto move = BestMoveFrom(servers_[*from], order, mean);
        if (!move) {
          tried.insert(*from);
          continue;
        }
        p_.BeginMove(move->slot, *from, move->to);
        moved = true;
      }
    }
  }

  void MovePrimaries() {
    if (p_.wanted() < 2) return;  // a primary moves with its bytes
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

  Edges PossibleHandovers() {
    Edges edges;
    for (uint32_t slot = 0; slot < p_.slots(); ++slot) {
      const wire::SlotOwner& owner = p_.Slot(slot);
      if (!p_.Settled(slot)) continue;
      for (const wire::Backup& backup : owner.backups)
        if (!p_.At(backup.server).avoided)
          edges[p_.PlaceOf(owner.server)][p_.PlaceOf(backup.server)].push_back(slot);
    }
    return edges;
  }

  // One primary less here, and one more at a server that is better off with it: directly, or by a chain
  // of handovers where the two share no slot.
  bool MoveOnePrimary(size_t from, Edges& edges) {
    const double here = servers_[from].primaries / servers_[from].weight;
    std::map<size_t, size_t> came_from = {{from, from}};
    std::deque<size_t> reached = {from};
    while (!reached.empty()) {
      const size_t at = reached.front();
      reached.pop_front();
      if ((servers_[at].primaries + 1) / servers_[at].weight < here) {
        for (size_t step = at; step != from; step = came_from[step])
          p_.HandOver(edges[came_from[step]][step].back(), servers_[step].index);
        return true;
      }
      if (servers_[at].handing_over >= limits_.handovers_per_server) continue;
      for (auto& [next, slots] : edges[at]) {
        while (!slots.empty() && !p_.Settled(slots.back())) slots.pop_back();  // handed over already
        if (!slots.empty() && came_from.emplace(next, at).second) reached.push_back(next);
      }
    }
    return false;
  }

  Plan p_;
  const std::vector<Server>& servers_;
  std::vector<std::vector<uint32_t>> settled_;  // slots by owner, as they were before any move
  const PlacementLimits& limits_;
};

}  // namespace cairn::scheduler
