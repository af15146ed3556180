#include "wire/stalled_rounds.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace cairn::wire {
namespace {

void MergeInto(StalledRound& round, const StalledRound& more) {
  round.waited_ms = std::max(round.waited_ms, more.waited_ms);
  std::vector<uint32_t> ranks;
  std::set_union(round.missing_ranks.begin(), round.missing_ranks.end(), more.missing_ranks.begin(),
                 more.missing_ranks.end(), std::back_inserter(ranks));
  round.missing = std::max({round.missing, more.missing, static_cast<uint32_t>(ranks.size())});
  round.missing_ranks = std::move(ranks);
}

}  // namespace

void AddStalled(std::vector<StalledRound>& rounds, StalledRound more) {
  auto same = std::find_if(rounds.begin(), rounds.end(), [&](const StalledRound& round) {
    return round.table == more.table && round.round == more.round;
  });
  if (same == rounds.end()) {
    rounds.push_back(std::move(more));
    same = std::prev(rounds.end());
  } else {
    MergeInto(*same, more);
  }
  if (same->missing_ranks.size() > kMaxMissingNamed) same->missing_ranks.resize(kMaxMissingNamed);
  std::sort(rounds.begin(), rounds.end(), [](const StalledRound& a, const StalledRound& b) {
    return std::tie(b.waited_ms, a.table, a.round) < std::tie(a.waited_ms, b.table, b.round);
  });
  if (rounds.size() > kMaxStalledRounds) rounds.resize(kMaxStalledRounds);
}

}  // namespace cairn::wire
