// Shard threads that do clearly more than the others give slots away, or exchange them, until the work is
// even (rule 53). Only once everything else is in its place, and without putting the bytes out of it.
//
// Each exchange takes work from a thread to one that has less, and leaves both below what the first had by
// at least kLeastGain of a slot's work: so it comes to an end, and a slot that alone is too much for a thread
// stays. Which slot goes back is looked up in order of their work: n log n for two threads with n slots.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>

#include "scheduler/placement/planner.h"

namespace cairn::scheduler {
namespace {

double At(const std::vector<double>& work, uint32_t slot) { return slot < work.size() ? work[slot] : 0.0; }

// Neighbours in the order of work that are looked at for one whose bytes fit, too.
constexpr int kNeighbours = 8;
// Copies are worth this much less than handovers, in parts of the mean.
constexpr double kCopyPenalty = 0.05;

}  // namespace

TrafficSpread SpreadOf(const wire::ClusterState& state, const SlotTraffic& traffic) {
  std::vector<std::vector<double>> work;  // by server and thread
  size_t threads = 0;
  for (const wire::ServerInfo& server : state.servers) {
    if (server.index >= work.size()) work.resize(server.index + 1);
    if (server.leaving) continue;
    work[server.index].resize(server.threads);
    threads += server.threads;
  }
  double sum = 0;
  auto add = [&](uint32_t server, uint32_t thread, double more) {
    if (thread >= work[server].size()) return;  // it is leaving
    work[server][thread] += more;
    sum += more;
  };
  for (uint32_t slot = 0; slot < state.slots.size(); ++slot) {
    const wire::SlotOwner& owner = state.slots[slot];
    const double pushed = At(traffic.pushed, slot);
    add(owner.server, owner.thread, pushed + At(traffic.pulled, slot));
    for (const wire::Backup& backup : owner.backups) add(backup.server, backup.thread, pushed);
  }
  TrafficSpread spread;
  if (threads == 0) return spread;
  spread.mean = sum / static_cast<double>(threads);
  for (uint32_t server = 0; server < work.size(); ++server)
    for (uint32_t thread = 0; thread < work[server].size(); ++thread)
      if (work[server][thread] > spread.hottest)
        spread = {work[server][thread], spread.mean, server, thread};
  return spread;
}

struct Planner::Search {
  size_t from, to;  // places in threads_
  double want;      // work to be taken away
  double most, least;
  bool Good(double work) const { return work >= least && work <= most; }
};

double Planner::WorkOf(uint32_t slot, const Server& owner) {
  const double pulled = Slot(slot).server == owner.index ? scheduler::At(traffic_->pulled, slot) : 0.0;
  return scheduler::At(traffic_->pushed, slot) + pulled;
}

bool Planner::MayMove(uint32_t slot) {
  return Settled(slot) && !(slot < traffic_->resting.size() && traffic_->resting[slot]);
}

bool Planner::TallyTraffic() {
  std::vector<size_t> first(servers_.size());
  double load = 0;
  for (size_t i = 0; i < servers_.size(); ++i) {
    first[i] = threads_.size();
    if (!servers_[i].stays) continue;
    load += servers_[i].load;
    for (uint32_t thread = 0; thread < servers_[i].threads.size(); ++thread)
      threads_.push_back({i, thread, 0, {}});
  }
  double sum = 0;
  size_t owned = 0;
  for (uint32_t slot = 0; slot < d_.state.slots.size(); ++slot) {
    if (!Settled(slot)) return false;
    const wire::SlotOwner& owner = Slot(slot);
    auto own = [&](uint32_t server, uint32_t thread) {
      Thread& at = threads_[first[at_[server]] + thread];
      at.work += WorkOf(slot, At(server));
      at.slots.push_back(slot);
      sum += WorkOf(slot, At(server));
      ++owned;
    };
    own(owner.server, owner.thread);
    for (const wire::Backup& backup : owner.backups) own(backup.server, backup.thread);
  }
  if (threads_.size() < 2 || !(sum > 0)) return false;
  mean_work_ = sum / static_cast<double>(threads_.size());
  least_gain_ = kLeastGain * sum / static_cast<double>(owned);
  mean_load_ = load / weights_;
  return true;
}

void Planner::MoveTraffic(const SlotTraffic& traffic) {
  traffic_ = &traffic;
  if (!TallyTraffic()) return;
  std::set<std::pair<double, size_t>> ranked, hot;
  auto enter = [&](size_t i) {
    ranked.insert({threads_[i].work, i});
    if (threads_[i].work > kTrafficGoal * mean_work_ && !servers_[threads_[i].server].avoided)
      hot.insert({threads_[i].work, i});
  };
  auto leave = [&](size_t i) {
    ranked.erase({threads_[i].work, i});
    hot.erase({threads_[i].work, i});
  };
  for (size_t i = 0; i < threads_.size(); ++i) enter(i);
  while (!hot.empty()) {
    const size_t from = std::prev(hot.end())->second;
    const auto exchange = BestExchange(from, ranked);
    if (!exchange) {
      hot.erase(std::prev(hot.end()));
      continue;
    }
    leave(from);
    leave(exchange->to);
    Carry(from, *exchange);
    enter(from);
    enter(exchange->to);
  }
}

std::optional<Planner::Exchange> Planner::BestExchange(size_t from,
                                                       const std::set<std::pair<double, size_t>>& ranked) {
  std::optional<Exchange> best;
  const double here = threads_[from].work, gain = least_gain_;
  size_t tried = 0;
  for (const auto& [there, to] : ranked) {
    if (there >= mean_work_ || tried == kTakersTried) break;
    const Server& taker = servers_[threads_[to].server];
    // A slot can't change its thread within a server.
    if (threads_[to].server == threads_[from].server || taker.avoided) continue;
    ++tried;
    const Search search{from, to, std::min(here - mean_work_, mean_work_ - there), here - gain - there, gain};
    if (search.most < search.least) continue;
    if (wanted_ > 1) LookForHandovers(search, best);
    LookForCopies(search, best);
  }
  return best;
}

// One primary there and one back, so that each server keeps as many as it has. Only the work of pulls goes
// with them, and nothing is copied.
void Planner::LookForHandovers(const Search& search, std::optional<Exchange>& best) {
  const Thread &from = threads_[search.from], &to = threads_[search.to];
  const Server &giver = servers_[from.server], &taker = servers_[to.server];
  if (giver.handing_over >= limits_.handovers_per_server) return;
  if (taker.handing_over >= limits_.handovers_per_server) return;
  auto pulled = [&](uint32_t slot) { return scheduler::At(traffic_->pulled, slot); };
  auto between = [&](const Thread& primary, const Thread& backup) {
    std::vector<std::pair<double, uint32_t>> slots;
    for (uint32_t slot : primary.slots) {
      const wire::SlotOwner& owner = Slot(slot);
      if (owner.server != servers_[primary.server].index || !MayMove(slot)) continue;
      const wire::Backup* other = owner.FindBackup(static_cast<uint16_t>(servers_[backup.server].index));
      if (other != nullptr && other->thread == backup.thread) slots.emplace_back(pulled(slot), slot);
    }
    std::sort(slots.begin(), slots.end());
    return slots;
  };
  const auto there = between(from, to), back = between(to, from);
  for (const auto& [work, slot] : there) {
    if (work < search.least) continue;
    auto near = std::lower_bound(back.begin(), back.end(), std::pair(work - search.want, 0u));
    for (auto it = near == back.begin() ? near : std::prev(near); it != back.end() && it <= near; ++it) {
      const double moved = work - it->first, off = std::abs(moved - search.want);
      if (search.Good(moved) && (!best || off < best->off)) best = {slot, it->second, search.to, true, off};
    }
  }
}

// A slot there, and one of the same role back where bytes or the number of primaries ask for it.
void Planner::LookForCopies(const Search& search, std::optional<Exchange>& best) {
  const Thread &from = threads_[search.from], &to = threads_[search.to];
  const Server &giver = servers_[from.server], &taker = servers_[to.server];
  auto leads = [&](uint32_t slot, const Server& server) {
    return wanted_ > 1 && Slot(slot).server == server.index;
  };
  struct MayCome {
    double work, cost;
    uint32_t slot;
    bool operator<(const MayCome& o) const {
      return std::tuple(work, cost, slot) < std::tuple(o.work, o.cost, o.slot);
    }
  };
  std::vector<MayCome> back[2];  // by role
  for (uint32_t slot : to.slots)
    if (MayMove(slot)) back[leads(slot, taker)].push_back({WorkOf(slot, taker), Cost(slot), slot});
  for (auto& candidates : back) std::sort(candidates.begin(), candidates.end());
  auto consider = [&](uint32_t slot, std::optional<uint32_t> other, double moved) {
    const double off = std::abs(moved - search.want) + kCopyPenalty * mean_work_ * (other ? 2 : 1);
    if (!search.Good(moved) || (best && off >= best->off)) return;
    if (!BytesFit(giver, taker, Cost(slot), other ? Cost(*other) : 0)) return;
    if (MayCopy(slot, taker, other, giver)) best = {slot, other, search.to, false, off};
  };
  for (uint32_t slot : from.slots) {
    const double work = WorkOf(slot, giver);
    if (work < search.least || !MayMove(slot)) continue;
    const bool led = leads(slot, giver);
    if (!led) consider(slot, std::nullopt, work);
    const auto& others = back[led];
    const auto near = std::lower_bound(others.begin(), others.end(),
                                       MayCome{work - search.want, Cost(slot), 0});
    const auto place = near - others.begin();
    const auto end = std::min<std::ptrdiff_t>(place + kNeighbours, std::ssize(others));
    for (auto i = std::max<std::ptrdiff_t>(0, place - kNeighbours); i < end; ++i)
      consider(slot, others[static_cast<size_t>(i)].slot, work - others[static_cast<size_t>(i)].work);
  }
}

// Both stay within the slack of their share of bytes, or no farther from it than they are.
bool Planner::BytesFit(const Server& from, const Server& to, double there, double back) const {
  auto fits = [&](const Server& server, double more) {
    const double before = std::abs(server.ratio() - mean_load_);
    const double after = std::abs((server.load + more) / server.weight - mean_load_);
    return after <= std::max(kSlack * mean_load_, before);
  };
  return fits(from, back - there) && fits(to, there - back);
}

bool Planner::MayCopy(uint32_t slot, const Server& to, std::optional<uint32_t> back, const Server& from) {
  auto room = [&](uint32_t one, const Server& taker) {
    const wire::SlotOwner& owner = Slot(one);
    return owner.server != taker.index && owner.FindBackup(static_cast<uint16_t>(taker.index)) == nullptr &&
           owner.backups.size() < wire::kMaxBackups && taker.copies_in < limits_.copies_per_server &&
           At(owner.server).copies_out < limits_.copies_per_server;
  };
  if (!room(slot, to)) return false;
  if (!back) return true;
  const Server& source = At(Slot(slot).server);
  const bool same = Slot(*back).server == source.index;
  return room(*back, from) && (!same || source.copies_out + 1 < limits_.copies_per_server);
}

void Planner::Carry(size_t from, const Exchange& exchange) {
  Thread &hot = threads_[from], &other = threads_[exchange.to];
  Server &giver = servers_[hot.server], &taker = servers_[other.server];
  auto go = [&](uint32_t slot, Thread& one, Server& at, Thread& next, Server& to) {
    const double work = exchange.handovers ? scheduler::At(traffic_->pulled, slot) : WorkOf(slot, at);
    one.work -= work;
    next.work += work;
    change_.for_traffic.push_back(slot);
    if (exchange.handovers) {
      HandOver(slot, to.index);
    } else {
      BeginMove(slot, at, to, next.thread);
    }
  };
  go(exchange.slot, hot, giver, other, taker);
  if (exchange.back) go(*exchange.back, other, taker, hot, giver);
}

}  // namespace cairn::scheduler
