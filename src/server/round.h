// One table's open round in one slot: who has contributed, whether it may close, and what its
// close record says (docs/consistency.md, rules 15 to 17 and 21). Pure bookkeeping over the slot's
// rows; the shard decides when to ask.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/ids.h"
#include "cairn/status.h"
#include "cairn/types.h"
#include "server/done_marks.h"
#include "server/parked.h"
#include "server/shard.h"
#include "table/slot_table.h"

namespace cairn::server {

// A received frame that waits for its turn in a deterministic sum; counts in `*kept_bytes`.
class KeptFrame {
 public:
  KeptFrame(Buffer storage, uint64_t* kept_bytes) : storage_(std::move(storage)), kept_bytes_(kept_bytes) {
    *kept_bytes_ += storage_.capacity();
  }
  ~KeptFrame() { *kept_bytes_ -= storage_.capacity(); }
  KeptFrame(const KeptFrame&) = delete;
  KeptFrame& operator=(const KeptFrame&) = delete;

 private:
  Buffer storage_;
  uint64_t* kept_bytes_;
};

// One worker's complete part of a round in one slot.
struct Contribution {
  Incarnation incarnation;
  Rank rank;
  double weight = 0;
  Hyper hyper;
  Status refused;                // not ok: the part failed its check; done with weight 0
  bool folded = false;           // its values are in the sum (or there are none: refused)
  std::span<const RowKey> keys;  // while it is not folded
  std::span<const std::byte> values;
  std::shared_ptr<KeptFrame> kept;
};

struct RefusedPart {
  Incarnation incarnation;
  Status why;
};

class SlotRound {
 public:
  Round open() const { return open_; }
  const std::vector<Contribution>& contributions() const { return contributions_; }  // by rank
  // A worker's rank never changes; it makes the search short.
  const Contribution* Find(Rank rank, Incarnation incarnation) const;
  // Requires that the worker has not contributed yet.
  Contribution& Add(Contribution contribution);
  // Requires that it is there and not folded.
  void Remove(Rank rank, Incarnation incarnation);
  bool HasUnfolded() const { return unfolded_ > 0; }

  // Adds `contribution` to the sum at once (tables that are not deterministic).
  void Fold(Contribution& contribution, table::SlotTable& rows);
  // Adds those whose turn it is in the order of ranks.
  void FoldInOrder(SlotId slot, const DoneMarks& marks, table::SlotTable& rows);

  // Members that are awaited and whose mark does not count here yet.
  std::vector<uint32_t> MissingRanks(SlotId slot, const DoneMarks& marks) const;
  // Rule 17 but for the hold: every awaited member's mark counts, and there is something to close
  // for: a mark, a contribution, or a later round that somebody starts with.
  bool MayClose(SlotId slot, const DoneMarks& marks, Round latest_start) const;
  // Decides divisor, hyper-parameters and outcome, and applies them. The open round rises; those
  // who wait for it are left in `waiting`.
  struct Closed {
    double divisor = 0;
    Hyper hyper;
    Status outcome;
    std::vector<Contributor> contributors;  // only if asked for
  };
  Closed Close(const wire::TableInfo& table, const DoneMarks& marks, table::SlotTable& rows,
               bool want_contributors);
  // What this worker is told about its part of a closed round: ok, or why not.
  Status OutcomeFor(Incarnation incarnation, Round round) const;
  // Some worker has to be told more than ok about the last closed round.
  bool unclean() const { return !last_outcome_.ok() || !last_refused_.empty(); }

  std::vector<ParkedId> waiting;

 private:
  bool MarkCounts(SlotId slot, const Member& member) const;
  void SumWeights(const DoneMarks& marks, bool want_contributors, Closed* closed) const;
  void StartNext(const Status& outcome);

  Round open_;
  std::vector<Contribution> contributions_;  // by (rank, incarnation)
  uint32_t unfolded_ = 0;
  // Of the last closed round, open_ - 1: a copy of a contribution to it may still come.
  Status last_outcome_;
  std::vector<RefusedPart> last_refused_;
};

// Different hyper-parameters in one round, in words; ok if all are the same.
Status CompareHyper(const wire::TableInfo& table, Round round, const DoneMarks& marks,
                    const std::vector<Contribution>& contributions, Hyper* hyper);

}  // namespace cairn::server
