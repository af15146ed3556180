#include "scheduler/core/deadlock_watch.h"

#include <algorithm>

namespace cairn::scheduler {
namespace {
constexpr size_t kMostNamed = 4;
}  // namespace

DeadlockWatch::DeadlockWatch(int64_t after_us, int64_t fresh_us)
    : after_us_(after_us == 0 ? 0 : std::max(after_us, kLeastUs)), fresh_us_(fresh_us) {}

void DeadlockWatch::Take(const wire::Blocked& report, int64_t now_us) {
  if (after_us_ > 0) reports_[report.incarnation] = {report, now_us};
}

// Everybody who waits for somebody who is stuck: what is left when all who may go on are taken out.
DeadlockWatch::Stuck DeadlockWatch::FindStuck(std::span<const Worker> workers, int64_t now_us) const {
  Stuck stuck;
  for (const Worker& worker : workers) {
    const auto it = reports_.find(worker.incarnation);
    if (it != reports_.end() && now_us - it->second.at_us <= fresh_us_)
      stuck.emplace(worker.rank.value, &it->second.said);
  }
  const auto waits = [&](const wire::Blocked& said) {
    const auto is_stuck = [&](uint32_t rank) { return stuck.contains(rank); };
    const bool in_barrier = said.barrier > 0;
    // Which of its calls the program waits for is not known: none of them may end.
    const bool barrier_stuck = std::any_of(workers.begin(), workers.end(), [&](const Worker& other) {
      return other.barrier_count < said.barrier && is_stuck(other.rank.value);
    });
    const bool rounds_stuck = std::any_of(said.ranks.begin(), said.ranks.end(), is_stuck);
    return (!in_barrier || barrier_stuck) && (said.ranks.empty() ? in_barrier : rounds_stuck);
  };
  while (std::erase_if(stuck, [&](const auto& one) { return !waits(*one.second); }) > 0) {
  }
  return stuck;
}

std::string DeadlockWatch::Look(std::span<const Worker> workers, int64_t now_us) {
  if (after_us_ == 0 || reports_.empty()) return {};
  const auto lives = [&](Incarnation incarnation) {
    return std::any_of(workers.begin(), workers.end(),
                       [&](const Worker& worker) { return worker.incarnation == incarnation; });
  };
  std::erase_if(reports_, [&](const auto& one) { return !lives(one.first); });
  std::erase_if(verdicts_, [&](const auto& one) { return !lives(one.first); });
  const Stuck stuck = FindStuck(workers, now_us);
  std::set<std::pair<Incarnation, uint64_t>> seen;
  for (const auto& [rank, said] : stuck) seen.emplace(said->incarnation, said->serial);
  if (seen != seen_) {
    seen_ = std::move(seen);
    since_us_ = now_us;
  }
  // All have said so when the time was over: one that has gone on since is silent.
  const bool certain = std::all_of(stuck.begin(), stuck.end(), [&](const auto& one) {
    return reports_.at(one.second->incarnation).at_us - since_us_ >= after_us_;
  });
  if (seen_.empty() || !certain) return {};
  bool news = false;
  const std::string text = Describe(stuck);
  for (const auto& [rank, said] : stuck) {
    wire::Deadlock& verdict = verdicts_[said->incarnation];
    if (verdict.serial == said->serial) continue;
    verdict = {said->serial, text};
    news = true;
  }
  return news ? text : "";
}

std::optional<wire::Deadlock> DeadlockWatch::Verdict(const wire::Blocked& report) const {
  const auto it = verdicts_.find(report.incarnation);
  if (it == verdicts_.end() || it->second.serial != report.serial) return std::nullopt;
  return it->second;
}

// "rank 0 is in a barrier, rank 1 waits for round 118 of table "w": …"
std::string DeadlockWatch::Describe(const Stuck& stuck) const {
  std::string text;
  size_t named = 0;
  // One of each kind first: those are what does not fit together.
  for (const bool barriers : {true, false}) {
    size_t of_kind = 0;
    for (const auto& [rank, said] : stuck) {
      if ((said->barrier > 0) != barriers || ++of_kind > kMostNamed / 2) continue;
      text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank) +
              (barriers ? " is in a barrier" : " waits for " + said->what);
      ++named;
    }
  }
  if (stuck.size() > named) text += " and " + std::to_string(stuck.size() - named) + " more wait too";
  return text + ": they wait for each other, and have for " + std::to_string(after_us_ / 1'000'000) +
         " s (CAIRN_DEADLOCK_AFTER_MS). Make the same calls in the same order on all workers";
}

}  // namespace cairn::scheduler
