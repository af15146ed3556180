#include "history.h"

#include <algorithm>
#include <iterator>

#include "violation_text.h"

namespace cairn::sim {

std::string ToString(const ShardName& shard) {
  return "server " + std::to_string(shard.server) + "#" + std::to_string(shard.incarnation) + " thread " +
         std::to_string(shard.thread);
}

const History::SlotHistory* History::Find(SlotId slot) const {
  auto it = slots_.find(slot.value);
  return it == slots_.end() ? nullptr : &it->second;
}

template <class Look>
void History::Walk(SlotId slot, Position from, Look look) const {
  const SlotHistory* history = Find(slot);
  if (history == nullptr) return;
  uint64_t limit = from.index();
  for (uint64_t epoch = from.epoch(); epoch != 0;) {
    auto it = history->branches.find(epoch);
    if (it == history->branches.end()) return;
    if (look(it->second, limit)) return;
    limit = std::min(limit, it->second.base);
    epoch = it->second.parent;
  }
}

History::Turn History::Begin(SlotId slot, uint64_t epoch, Position held, const ShardName& by) {
  SlotHistory& history = slots_[slot.value];
  auto [it, added] = history.branches.try_emplace(epoch);
  if (!added) {
    if (it->second.by != by) {
      complain_("slot " + std::to_string(slot.value) + " has two primaries under epoch " +
                std::to_string(epoch) + ": " + ToString(it->second.by) + " and " + ToString(by));
    }
    return {};
  }
  ++branch_count_;
  Branch& branch = it->second;
  branch.by = by;
  branch.parent = held.index() == 0 ? 0 : held.epoch();
  branch.base = held.index();
  if (epoch < history.line) return {};
  const Position line = history.line == 0 ? Position{} : End(slot);
  history.line = epoch;
  Turn turn;
  turn.lost = line.index() > 0 && !Holds(slot, Position::Of(epoch, held.index()), line);
  turn.regained = held.index() > line.index();
  return turn;
}

void History::KeepStaged(SlotId slot, uint64_t epoch) {
  SlotHistory& history = slots_[slot.value];
  Branch& branch = history.branches.at(epoch);
  for (auto it = history.branches.find(epoch); it != history.branches.begin();) {
    --it;
    if (it->second.by != branch.by) continue;
    branch.staged = std::exchange(it->second.staged, {});
    return;
  }
}

const Op* History::Add(Op op) {
  SlotHistory& history = slots_[op.slot.value];
  const uint64_t epoch = op.position.epoch();
  if (!history.branches.contains(epoch))
    Begin(op.slot, epoch, history.line == 0 ? Position{} : End(op.slot), op.shard);
  Branch& branch = history.branches.at(epoch);
  if (op.position.index() <= branch.base) return nullptr;  // what it has taken over
  if (op.position.index() != branch.end() + 1) {
    complain_(Words(op.slot, op.position) + " follows " + std::to_string(branch.end()));
    return nullptr;
  }
  if (branch.by != op.shard) {
    complain_(Words(op.slot, op.position) + " is made by " + ToString(op.shard) + ", the primary is " +
              ToString(branch.by));
  }
  if (op.kind != Op::Kind::kPush) {
    auto mine = std::stable_partition(branch.staged.begin(), branch.staged.end(), [&](const StagedPart& p) {
      return p.table != op.table || p.round != op.round;
    });
    std::move(mine, branch.staged.end(), std::back_inserter(op.staged));
    branch.staged.erase(mine, branch.staged.end());
  }
  const uint64_t index = op.position.index();
  switch (op.kind) {
    case Op::Kind::kPush: branch.pushes[{op.incarnation.value, op.seq.value}] = index; break;
    case Op::Kind::kSumUp: branch.sums[{op.table.value, op.round.value}] = index; break;
    case Op::Kind::kClose:
      branch.closes[{op.table.value, op.round.value}] = index;
      branch.rounds[op.table.value].emplace_back(index, op.round.value + 1);
      break;
  }
  branch.ops.push_back(std::move(op));
  return &branch.ops.back();
}

void History::Stage(uint64_t epoch, StagedPart part) {
  SlotHistory& history = slots_[part.slot.value];
  if (!history.branches.contains(epoch))
    Begin(part.slot, epoch, history.line == 0 ? Position{} : End(part.slot), part.shard);
  history.branches.at(epoch).staged.push_back(std::move(part));
}

uint64_t History::LineEpoch(SlotId slot) const {
  const SlotHistory* history = Find(slot);
  return history == nullptr ? 0 : history->line;
}

Position History::End(SlotId slot, uint64_t epoch) const {
  const SlotHistory* history = Find(slot);
  if (history == nullptr) return {};
  if (epoch == 0) epoch = history->line;
  auto it = history->branches.find(epoch);
  return it == history->branches.end() ? Position{} : Position::Of(epoch, it->second.end());
}

uint64_t History::MadeIn(SlotId slot, Position at) const {
  uint64_t made_in = 0;
  const SlotHistory* history = Find(slot);
  if (history == nullptr || at.index() == 0) return 0;
  uint64_t epoch = at.epoch();
  Walk(slot, at, [&](const Branch& branch, uint64_t) {
    if (at.index() > branch.base) {
      if (at.index() <= branch.end()) made_in = epoch;
      return true;
    }
    epoch = branch.parent;
    return false;
  });
  return made_in;
}

bool History::Holds(SlotId slot, Position held, Position op) const {
  if (op.index() == 0) return true;
  if (held.index() < op.index()) return false;
  const uint64_t made_in = MadeIn(slot, op);
  return made_in != 0 && MadeIn(slot, Position::Of(held.epoch(), op.index())) == made_in;
}

template <class Key>
uint64_t History::Search(SlotId slot, uint64_t epoch, std::map<Key, uint64_t> Branch::* where,
                         const Key& key) const {
  uint64_t found = 0;
  Walk(slot, Position::Of(epoch, End(slot, epoch).index()), [&](const Branch& branch, uint64_t limit) {
    auto it = (branch.*where).find(key);
    if (it == (branch.*where).end() || it->second > limit) return false;
    found = it->second;
    return true;
  });
  return found;
}

uint64_t History::FindPush(SlotId slot, uint64_t epoch, Incarnation incarnation, Seq seq) const {
  return Search(slot, epoch, &Branch::pushes, std::pair<uint64_t, uint64_t>{incarnation.value, seq.value});
}
uint64_t History::FindClose(SlotId slot, uint64_t epoch, TableId table, Round round) const {
  return Search(slot, epoch, &Branch::closes, RoundOf{table.value, round.value});
}
uint64_t History::FindSumUp(SlotId slot, uint64_t epoch, TableId table, Round round) const {
  return Search(slot, epoch, &Branch::sums, RoundOf{table.value, round.value});
}

Round History::OpenRound(SlotId slot, Position at, TableId table) const {
  uint64_t open = 0;
  Walk(slot, at, [&](const Branch& branch, uint64_t limit) {
    auto it = branch.rounds.find(table.value);
    if (it == branch.rounds.end()) return false;
    for (auto closed = it->second.rbegin(); closed != it->second.rend(); ++closed) {
      if (closed->first > limit) continue;
      open = closed->second;
      return true;
    }
    return false;
  });
  return Round{open};
}

void History::ForEach(SlotId slot, const std::function<void(const Op&)>& each) const {
  std::vector<std::pair<const Branch*, uint64_t>> chain;
  Walk(slot, End(slot), [&](const Branch& branch, uint64_t limit) {
    chain.emplace_back(&branch, limit);
    return false;
  });
  for (auto it = chain.rbegin(); it != chain.rend(); ++it) {
    for (const Op& op : it->first->ops)
      if (op.position.index() <= it->second) each(op);
  }
}

std::vector<const StagedPart*> History::Pending(SlotId slot) const {
  std::vector<const StagedPart*> pending;
  const SlotHistory* history = Find(slot);
  if (history == nullptr || history->line == 0) return pending;
  for (const StagedPart& part : history->branches.at(history->line).staged) pending.push_back(&part);
  return pending;
}

Position History::ParentOf(SlotId slot, uint64_t epoch) const {
  const SlotHistory* history = Find(slot);
  if (history == nullptr || !history->branches.contains(epoch)) return {};
  const Branch& branch = history->branches.at(epoch);
  return Position::Of(branch.parent, branch.base);
}

}  // namespace cairn::sim
