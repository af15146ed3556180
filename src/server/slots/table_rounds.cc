#include "server/slots/table_rounds.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/planted.h"

namespace cairn::server {

void TableRounds::Update(const wire::ClusterState& state, const wire::TableInfo& table,
                         const OwnedSlots& slots) {
  rounds_.resize(slots.size());
  waiting_.resize(slots.size());
  std::vector<Member> members;
  for (const wire::WorkerInfo& worker : state.workers) {
    if (worker.join_view == ViewNumber{0}) continue;
    members.push_back({worker.incarnation, worker.rank, FirstRound(state, worker, table), {}});
  }
  marks_.SetMembers(std::move(members));
  latest_start_ = Round{0};
  for (const wire::View& view : state.views)
    for (const wire::TableRound& start : view.starts)
      if (start.table == table.id) latest_start_ = std::max(latest_start_, start.round);
  Recount(slots);
}

void TableRounds::Recount(const OwnedSlots& slots) {
  at_lowest_ = 0;
  summed_at_lowest_ = 0;
  unclean_slots_ = 0;
  joined_slots_ = 0;
  bool first = true;
  for (uint32_t local = 0; local < rounds_.size(); ++local) {
    if (!slots[local].primary()) continue;
    const Round open = rounds_[local].open();
    unclean_slots_ += rounds_[local].unclean();
    joined_slots_ += rounds_[local].all_joined();
    if (first || open < lowest_open_) {
      lowest_open_ = open;
      at_lowest_ = 0;
      summed_at_lowest_ = 0;
    }
    if (first || open > highest_open_) highest_open_ = open;
    first = false;
    if (open != lowest_open_) continue;
    ++at_lowest_;
    summed_at_lowest_ += rounds_[local].summed() != nullptr;
  }
  CAIRN_CHECK(summed_at_lowest_ <= at_lowest_ && (first || lowest_open_ <= highest_open_));
}

// One that nobody has begun can wait for those who join: it may be long until it moves, and they start from
// the values before it.
bool TableRounds::Touched(const OwnedSlots& slots) const {
  for (const Member& member : marks_.members())
    if (member.mark.given && member.mark.round >= highest_open_) return true;
  for (uint32_t local = 0; local < rounds_.size(); ++local) {
    const SlotRound& round = rounds_[local];
    if (!slots[local].primary() || round.open() != highest_open_) continue;
    if (!round.contributions().empty() || round.summed() != nullptr) return true;
  }
  return false;
}

bool TableRounds::NothingCloses() const {
  // A slot that came here summed up needs decisions, not marks: those may have gone to its old primary.
  if (summed_at_lowest_ == 0 && marks_.Lacks(lowest_open_)) return true;
  return AllSummedUp() && marks_.LacksDecision(lowest_open_) && !CAIRN_BUG(kDecideEarly);
}

const SlotRound::Summed& TableRounds::SumUp(uint32_t local, const wire::TableInfo& table,
                                            table::SlotTable& rows, bool want_contributors) {
  SlotRound& round = rounds_[local];
  const SlotRound::Summed& summed = round.SumUp(table, marks_, rows, want_contributors);
  if (round.open() == lowest_open_) ++summed_at_lowest_;
  CAIRN_CHECK(summed_at_lowest_ <= at_lowest_);
  return summed;
}

bool TableRounds::Close(uint32_t local, const ClosedRound& closed, table::SlotTable& rows,
                        const OwnedSlots& slots) {
  SlotRound& round = rounds_[local];
  const Round closing = round.open();
  CAIRN_CHECK(closing >= lowest_open_ && closing <= highest_open_ && !Held(closing));
  const uint32_t was_unclean = round.unclean(), was_joined = round.all_joined();
  const uint32_t was_summed = round.summed() != nullptr;
  round.Close(closing, closed, rows);
  CAIRN_CHECK(unclean_slots_ >= was_unclean && joined_slots_ >= was_joined);
  unclean_slots_ = unclean_slots_ - was_unclean + round.unclean();
  joined_slots_ = joined_slots_ - was_joined + round.all_joined();
  const bool first = closing == highest_open_;
  if (first) highest_open_ = closing.Next();
  if (closing == lowest_open_) {
    CAIRN_CHECK(at_lowest_ > 0 && summed_at_lowest_ >= was_summed);
    summed_at_lowest_ -= was_summed;
    if (--at_lowest_ == 0) Recount(slots);
  }
  return first;
}

void TableRounds::TakeWoken(std::span<const uint32_t> moved, Round lowest_before,
                            std::vector<ParkedId>* woken) {
  const auto take = [&](std::vector<ParkedId>& waiting) {
    woken->insert(woken->end(), waiting.begin(), waiting.end());
    waiting.clear();
  };
  for (uint32_t local : moved) take(waiting_[local]);
  const bool risen = lowest_open_ > lowest_before;
  if (risen) take(waiting_for_all_);
  if (risen || AllSummedUp()) take(waiting_for_reports_);
}

}  // namespace cairn::server
