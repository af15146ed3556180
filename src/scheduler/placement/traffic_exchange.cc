#include "scheduler/placement/traffic_exchange.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace cairn::scheduler {
namespace {

// Shard threads with no more than this many times the mean's work are left as they are.
constexpr double kTrafficGoal = 1.10;
// What an exchange must bring at least, in parts of a slot's work on average.
constexpr double kLeastGain = 0.25;
// How many of the threads with the least work a hot one is compared with.
constexpr size_t kTakersTried = 8;
// Neighbours in the order of work that are looked at for one whose bytes fit, too.
constexpr int kNeighbours = 8;
// Copies are worth this much less than handovers, in parts of the mean.
constexpr double kCopyPenalty = 0.05;

class TrafficExchange {
 public:
  TrafficExchange(Plan& plan, const SlotTraffic& traffic) : plan_(plan), traffic_(traffic) {}
  void Run();

 private:
  struct Thread {       // a shard thread, by its work
    size_t server = 0;  // place in Plan::servers()
    uint32_t thread = 0;
    double work = 0;
    std::vector<uint32_t> slots;  // that it owns
  };
  // `slot` goes from the hot thread to the other one, `back` the other way, if there is one.
  struct Exchange {
    uint32_t slot = 0;
    std::optional<uint32_t> back;
    size_t to = 0;           // place in threads_
    bool handovers = false;  // of primaries; else copies
    double off = 0;          // how far it is from the best
  };
  struct Search {     // for an exchange between two threads
    size_t from, to;  // places in threads_
    double want;      // work to be taken away
    double most, least;
    bool Good(double work) const { return work >= least && work <= most; }
  };

  bool Tally();  // false: something is under way, or there is nothing to do
  double WorkOf(uint32_t slot, const Plan::Server& owner) const;
  bool MayMove(uint32_t slot) const;
  std::optional<Exchange> BestExchange(size_t from, const std::set<std::pair<double, size_t>>& ranked) const;
  void LookForHandovers(const Search& search, std::optional<Exchange>& best) const;
  void LookForCopies(const Search& search, std::optional<Exchange>& best) const;
  bool BytesFit(const Plan::Server& from, const Plan::Server& to, double there, double back) const;
  bool MayCopy(uint32_t slot, const Plan::Server& to, std::optional<uint32_t> back,
               const Plan::Server& from) const;
  void Carry(size_t from, const Exchange& exchange);

  Plan& plan_;
  const SlotTraffic& traffic_;
  std::vector<Thread> threads_;  // of the servers that stay
  double mean_work_ = 0;         // of a thread
  double least_gain_ = 0;
  double mean_load_ = 0;  // of a weight of 1
};

double TrafficExchange::WorkOf(uint32_t slot, const Plan::Server& owner) const {
  const double pulled = plan_.Slot(slot).server == owner.index ? traffic_.PulledAt(slot) : 0.0;
  return traffic_.PushedAt(slot) + pulled;
}

bool TrafficExchange::MayMove(uint32_t slot) const {
  return plan_.Settled(slot) && !(slot < traffic_.resting.size() && traffic_.resting[slot]);
}

bool TrafficExchange::Tally() {
  std::vector<size_t> first(plan_.servers().size());
  double load = 0;
  for (size_t i = 0; i < plan_.servers().size(); ++i) {
    first[i] = threads_.size();
    if (!plan_.servers()[i].stays) continue;
    load += plan_.servers()[i].load;
    for (uint32_t thread = 0; thread < plan_.servers()[i].threads.size(); ++thread)
      threads_.push_back({i, thread, 0, {}});
  }
  double sum = 0;
  size_t owned = 0;
  for (uint32_t slot = 0; slot < plan_.slots(); ++slot) {
    if (!plan_.Settled(slot)) return false;
    const wire::SlotOwner& owner = plan_.Slot(slot);
    auto own = [&](uint32_t server, uint32_t thread) {
      Thread& at = threads_[first[plan_.PlaceOf(server)] + thread];
      at.work += WorkOf(slot, plan_.At(server));
      at.slots.push_back(slot);
      sum += WorkOf(slot, plan_.At(server));
      ++owned;
    };
    own(owner.server, owner.thread);
    for (const wire::Backup& backup : owner.backups) own(backup.server, backup.thread);
  }
  if (threads_.size() < 2 || !(sum > 0)) return false;
  mean_work_ = sum / static_cast<double>(threads_.size());
  least_gain_ = kLeastGain * sum / static_cast<double>(owned);
  mean_load_ = load / plan_.weights();
  return true;
}

void TrafficExchange::Run() {
  if (!Tally()) return;
  std::set<std::pair<double, size_t>> ranked, hot;
  auto enter = [&](size_t i) {
    ranked.insert({threads_[i].work, i});
    if (threads_[i].work > kTrafficGoal * mean_work_ && !plan_.servers()[threads_[i].server].avoided)
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

std::optional<TrafficExchange::Exchange> TrafficExchange::BestExchange(
    size_t from, const std::set<std::pair<double, size_t>>& ranked) const {
  std::optional<Exchange> best;
  const double here = threads_[from].work, gain = least_gain_;
  size_t tried = 0;
  for (const auto& [there, to] : ranked) {
    if (there >= mean_work_ || tried == kTakersTried) break;
    const Plan::Server& taker = plan_.servers()[threads_[to].server];
    // A slot can't change its thread within a server.
    if (threads_[to].server == threads_[from].server || taker.avoided) continue;
    ++tried;
    const Search search{from, to, std::min(here - mean_work_, mean_work_ - there), here - gain - there, gain};
    if (search.most < search.least) continue;
    if (plan_.wanted() > 1) LookForHandovers(search, best);
    LookForCopies(search, best);
  }
  return best;
}

// One primary there and one back, so that each server keeps as many as it has. Only the work of pulls goes
// with them, and nothing is copied.
void TrafficExchange::LookForHandovers(const Search& search, std::optional<Exchange>& best) const {
  const Thread &from = threads_[search.from], &to = threads_[search.to];
  const Plan::Server &giver = plan_.servers()[from.server], &taker = plan_.servers()[to.server];
  if (giver.handing_over >= plan_.limits().handovers_per_server) return;
  if (taker.handing_over >= plan_.limits().handovers_per_server) return;
  auto pulled = [&](uint32_t slot) { return traffic_.PulledAt(slot); };
  auto between = [&](const Thread& primary, const Thread& backup) {
    std::vector<std::pair<double, uint32_t>> slots;
    for (uint32_t slot : primary.slots) {
      const wire::SlotOwner& owner = plan_.Slot(slot);
      if (owner.server != plan_.servers()[primary.server].index || !MayMove(slot)) continue;
      const wire::Backup* other =
          owner.FindBackup(static_cast<uint16_t>(plan_.servers()[backup.server].index));
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
void TrafficExchange::LookForCopies(const Search& search, std::optional<Exchange>& best) const {
  const Thread &from = threads_[search.from], &to = threads_[search.to];
  const Plan::Server &giver = plan_.servers()[from.server], &taker = plan_.servers()[to.server];
  auto leads = [&](uint32_t slot, const Plan::Server& server) {
    return plan_.wanted() > 1 && plan_.Slot(slot).server == server.index;
  };
  struct Candidate {
    double work, cost;
    uint32_t slot;
    bool operator<(const Candidate& o) const {
      return std::tuple(work, cost, slot) < std::tuple(o.work, o.cost, o.slot);
    }
  };
  std::vector<Candidate> back[2];  // by role
  for (uint32_t slot : to.slots)
    if (MayMove(slot)) back[leads(slot, taker)].push_back({WorkOf(slot, taker), plan_.Cost(slot), slot});
  for (auto& candidates : back) std::sort(candidates.begin(), candidates.end());
  auto consider = [&](uint32_t slot, std::optional<uint32_t> other, double moved) {
    const double off = std::abs(moved - search.want) + kCopyPenalty * mean_work_ * (other ? 2 : 1);
    if (!search.Good(moved) || (best && off >= best->off)) return;
    if (!BytesFit(giver, taker, plan_.Cost(slot), other ? plan_.Cost(*other) : 0)) return;
    if (MayCopy(slot, taker, other, giver)) best = {slot, other, search.to, false, off};
  };
  for (uint32_t slot : from.slots) {
    const double work = WorkOf(slot, giver);
    if (work < search.least || !MayMove(slot)) continue;
    const bool led = leads(slot, giver);
    if (!led) consider(slot, std::nullopt, work);
    const auto& others = back[led];
    const auto near =
        std::lower_bound(others.begin(), others.end(), Candidate{work - search.want, plan_.Cost(slot), 0});
    const auto place = near - others.begin();
    const auto end = std::min<std::ptrdiff_t>(place + kNeighbours, std::ssize(others));
    for (auto i = std::max<std::ptrdiff_t>(0, place - kNeighbours); i < end; ++i)
      consider(slot, others[static_cast<size_t>(i)].slot, work - others[static_cast<size_t>(i)].work);
  }
}

// Both stay within the slack of their share of bytes, or no farther from it than they are.
bool TrafficExchange::BytesFit(const Plan::Server& from, const Plan::Server& to, double there,
                               double back) const {
  auto fits = [&](const Plan::Server& server, double more) {
    const double before = std::abs(server.ratio() - mean_load_);
    const double after = std::abs((server.load + more) / server.weight - mean_load_);
    return after <= std::max(Plan::kSlack * mean_load_, before);
  };
  return fits(from, back - there) && fits(to, there - back);
}

bool TrafficExchange::MayCopy(uint32_t slot, const Plan::Server& to, std::optional<uint32_t> back,
                              const Plan::Server& from) const {
  auto room = [&](uint32_t one, const Plan::Server& taker) {
    const wire::SlotOwner& owner = plan_.Slot(one);
    return owner.server != taker.index && owner.FindBackup(static_cast<uint16_t>(taker.index)) == nullptr &&
           owner.backups.size() < wire::kMaxBackups && taker.copies_in < plan_.limits().copies_per_server &&
           plan_.At(owner.server).copies_out < plan_.limits().copies_per_server;
  };
  if (!room(slot, to)) return false;
  if (!back) return true;
  const Plan::Server& source = plan_.At(plan_.Slot(slot).server);
  const bool same = plan_.Slot(*back).server == source.index;
  return room(*back, from) && (!same || source.copies_out + 1 < plan_.limits().copies_per_server);
}

void TrafficExchange::Carry(size_t from, const Exchange& exchange) {
  Thread &hot = threads_[from], &other = threads_[exchange.to];
  auto go = [&](uint32_t slot, Thread& one, Thread& next) {
    const double work =
        exchange.handovers ? traffic_.PulledAt(slot) : WorkOf(slot, plan_.servers()[one.server]);
    one.work -= work;
    next.work += work;
    plan_.NoteMovedForTraffic(slot);
    if (exchange.handovers) {
      plan_.HandOver(slot, plan_.servers()[next.server].index);
    } else {
      plan_.BeginMove(slot, one.server, next.server, next.thread);
    }
  };
  go(exchange.slot, hot, other);
  if (exchange.back) go(*exchange.back, other, hot);
}

}  // namespace

void MoveTraffic(Plan& plan, const SlotTraffic& traffic) { TrafficExchange(plan, traffic).Run(); }

}  // namespace cairn::scheduler
