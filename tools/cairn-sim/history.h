// The order of operations of every slot, as its primaries made it. A slot's epochs are branches: a
// new primary goes on from what it has of its predecessor's branch, and whatever the predecessor did
// beyond that never happened. The newest branch with all that lies before it is the slot's *line*.
// A primary that has been replaced and does not know it goes on in its own branch, where it may be
// read, but not believed. Pure bookkeeping: World feeds it, checkers look into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "cairn/types.h"
#include "server/shard/shard.h"

namespace cairn::sim {

// A shard of one start of a server: a restarted one is another.
struct ShardName {
  uint32_t server = 0;  // index in the state
  uint32_t thread = 0;
  uint64_t incarnation = 0;  // 0: not registered yet
  auto operator<=>(const ShardName&) const = default;
};
std::string ToString(const ShardName& shard);

// A contribution, kept with the operation that it went into.
struct StagedPart {
  ShardName shard;
  SlotId slot;
  Incarnation incarnation;
  TableId table;
  Round round;
  double weight = 0;
  bool refused = false;
  std::vector<RowKey> keys;
  std::vector<std::byte> values;
};

struct Op {
  enum class Kind : uint8_t { kPush, kSumUp, kClose };
  Kind kind = Kind::kPush;
  ShardName shard;
  SlotId slot;
  TableId table;
  Position position;
  // kPush
  Incarnation incarnation;
  Seq seq;
  server::Outcome outcome = server::Outcome::kApplied;
  Code code = Code::kOk;
  std::vector<RowKey> keys;
  std::vector<std::byte> values;
  Hyper hyper;
  // kSumUp, kClose
  Round round;
  double divisor = 0;
  std::vector<server::Contributor> contributors;
  std::optional<server::CloseRecord> record;  // kClose
  std::vector<StagedPart> staged;             // what it is made of; empty where a sum came before
};

class History {
 public:
  using Complain = std::function<void(const std::string&)>;
  explicit History(Complain complain) : complain_(std::move(complain)) {}

  // `by` begins to act as primary under `epoch`, going on from what it has: `held`. Operations of the
  // line may thereby never have happened, and others that had been given up have, after all.
  struct Turn {
    bool lost = false, regained = false;
  };
  Turn Begin(SlotId slot, uint64_t epoch, Position held, const ShardName& by);
  // It was the primary before and has missed that somebody else was in between: what is staged there
  // stays. After Begin.
  void KeepStaged(SlotId slot, uint64_t epoch);
  // The next operation of its branch. Null if it is none: it lies before the branch's beginning.
  const Op* Add(Op op);
  void Stage(uint64_t epoch, StagedPart part);

  uint64_t LineEpoch(SlotId slot) const;
  bool IsLine(SlotId slot, uint64_t epoch) const { return LineEpoch(slot) == epoch; }
  // The last operation of the branch (by default: the line).
  Position End(SlotId slot, uint64_t epoch = 0) const;
  // The epoch of the branch in which the operation `at.index()`, seen from branch `at.epoch()`, was
  // made; 0 if there is none.
  uint64_t MadeIn(SlotId slot, Position at) const;
  // Who has `held` has the operation at `op`, too, and not another one in its place.
  bool Holds(SlotId slot, Position held, Position op) const;
  bool OnLine(SlotId slot, Position at) const { return Holds(slot, End(slot), at); }
  // Index of a decided push, of a sum or of a close, as seen from a branch; 0 if there is none.
  uint64_t FindPush(SlotId slot, uint64_t epoch, Incarnation incarnation, Seq seq) const;
  uint64_t FindClose(SlotId slot, uint64_t epoch, TableId table, Round round) const;
  uint64_t FindSumUp(SlotId slot, uint64_t epoch, TableId table, Round round) const;
  // The open round of the table at this position.
  Round OpenRound(SlotId slot, Position at, TableId table) const;
  Round OpenRound(SlotId slot, TableId table) const { return OpenRound(slot, End(slot), table); }
  // Each operation of the line, in order.
  void ForEach(SlotId slot, const std::function<void(const Op&)>& each) const;
  // What is staged in the line's branch and has gone into no operation yet.
  std::vector<const StagedPart*> Pending(SlotId slot) const;
  // The branch that `epoch` goes on from, and where; epoch 0: from nothing.
  Position ParentOf(SlotId slot, uint64_t epoch) const;
  uint64_t branches() const { return branch_count_; }

 private:
  using RoundOf = std::pair<uint32_t, uint64_t>;  // table, round
  struct Branch {
    ShardName by;
    uint64_t parent = 0;  // epoch
    uint64_t base = 0;    // index of the last operation that is not its own
    std::vector<Op> ops;
    std::vector<StagedPart> staged;
    std::map<std::pair<uint64_t, uint64_t>, uint64_t> pushes;  // (incarnation, number) → index
    std::map<RoundOf, uint64_t> sums, closes;
    std::map<uint32_t, std::vector<std::pair<uint64_t, uint64_t>>> rounds;  // table → (index, open)
    uint64_t end() const { return base + ops.size(); }
  };
  struct SlotHistory {
    std::map<uint64_t, Branch> branches;  // by epoch
    uint64_t line = 0;
  };
  const SlotHistory* Find(SlotId slot) const;
  // Calls look(branch, limit) for the branch and those before it, with the last index that counts
  // there, until it says true.
  template <class Look>
  void Walk(SlotId slot, Position from, Look look) const;
  template <class Key>
  uint64_t Search(SlotId slot, uint64_t epoch, std::map<Key, uint64_t> Branch::* where, const Key& key) const;

  Complain complain_;
  std::map<uint32_t, SlotHistory> slots_;
  uint64_t branch_count_ = 0;
};

}  // namespace cairn::sim
