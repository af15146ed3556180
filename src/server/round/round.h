// One table's open round in one slot: who has contributed, whether it may close, and what its
// close record says (docs/internals/consistency.md, rules 15 to 17, 21 and 31 to 34). Pure bookkeeping over the
// slot's rows; the shard decides when to ask. round.cc has who contributes, round_closing.cc what
// is summed up, decided and applied.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/byte_stream.h"
#include "base/ids.h"
#include "cairn/status.h"
#include "cairn/types.h"
#include "server/round/done_marks.h"
#include "server/shard/parked.h"
#include "server/round/round_terms.h"
#include "server/shard/shard.h"
#include "table/slot_table.h"
#include "wire/data.h"

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
  double factor = 0;  // what its values are multiplied by in the sum
  RoundTerms terms;
  bool not_finite = false;       // its worker says so of the whole gradient
  Status refused;                // not ok: the part failed its check; done with weight 0
  bool folded = false;           // its values are in the sum (or there are none: refused)
  std::span<const RowKey> keys;  // while it is not folded
  std::span<const std::byte> values;
  table::Mask mask;
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

  // Members that are awaited and whose mark does not count here yet; once the round is summed up,
  // those who have not decided.
  std::vector<uint32_t> MissingRanks(SlotId slot, const DoneMarks& marks) const;

  // What may happen to the open round now, but for a hold.
  enum class Step : uint8_t { kWait, kSumUp, kClose };
  Step NextStep(SlotId slot, const DoneMarks& marks, Round latest_start) const;

  // Rule 33: what is fixed when the round is summed up, until it closes.
  struct Summed {
    double divisor = 0;
    std::vector<Contributor> contributors;  // only if asked for
    bool something = false;                 // to report: there is a sum, or a gradient was not finite
    wire::SlotReport report;
  };
  // Requires NextStep() == kSumUp.
  const Summed& SumUp(const wire::TableInfo& table, const DoneMarks& marks, table::SlotTable& rows,
                      bool want_contributors);
  // Null unless the open round is summed up.
  const Summed* summed() const { return summed_ ? &*summed_ : nullptr; }

  // What becomes of the open round: divisor, hyper-parameters, outcome and effect. Contributions that
  // wait for their turn are folded; nothing else changes. Requires NextStep() == kClose.
  enum class Effect : uint8_t { kNothing = 0, kUpdate = 1, kAssign = 2 };
  struct Closed {
    double divisor = 0;
    Hyper hyper;
    Status outcome;
    std::vector<Contributor> contributors;  // only if asked for
    PushOp op = PushOp::kUpdate;
    uint8_t column = 0;
    double scale = 1;
    bool two_phase = false;  // it was summed up, and closed by a decision
    bool skipped = false;
    bool all_joined = false;
    wire::SlotReport report;
    Effect effect = Effect::kNothing;  // of the staged sums
    bool counts = false;               // as a step of the table
    std::vector<RefusedPart> refused;  // whose part was; they are told why
  };
  Closed Decide(const wire::TableInfo& table, const DoneMarks& marks, table::SlotTable& rows,
                bool want_contributors);
  // Does that, here or on a backup. The open round is then `round` + 1; those who wait for it are
  // left in `waiting`.
  void Close(Round round, const Closed& closed, table::SlotTable& rows);

  // For the backups and for a copy (round_copy.cc): the open round with what is summed up, and what
  // copies of the last round's frames are told. Staged sums are the table's business.
  void SaveSummed(ByteWriter& out) const;  // requires summed()
  bool LoadSummed(Round round, ByteReader& in);
  void Save(ByteWriter& out) const;
  bool Load(ByteReader& in);

  // What this worker is told about its part of a closed round: ok, or why not.
  Status OutcomeFor(Incarnation incarnation, Round round) const;
  // Forgets the contributions to the open round, unless it is summed up.
  void DropStaged(table::SlotTable& rows);
  // Some worker has to be told more than ok about the last closed round.
  bool unclean() const { return !last_outcome_.ok() || !last_refused_.empty(); }
  // The last closed round had only marks of workers that have joined.
  bool all_joined() const { return last_all_joined_; }
  bool AllJoinedIn(Round round) const { return last_all_joined_ && round.Next() == open_; }

  std::vector<ParkedId> waiting;

 private:
  bool MarkCounts(SlotId slot, const Member& member) const;
  bool AllMarked(SlotId slot, const DoneMarks& marks, Round latest_start) const;
  bool AllDecided(const DoneMarks& marks, Round latest_start) const;
  // The terms that all have given; or who differs.
  Status Agree(const TableSpec& spec, const DoneMarks& marks, RoundTerms* terms) const;
  Status AgreeOnDecision(const TableSpec& spec, const DoneMarks& marks,
                         std::optional<Decision>* decision) const;
  double SumWeights(const DoneMarks& marks, std::vector<Contributor>* contributors) const;
  bool SomebodyNotFinite(const DoneMarks& marks) const;
  void FoldRest(table::SlotTable& rows);
  void DecideAtOnce(const wire::TableInfo& table, const DoneMarks& marks, table::SlotTable& rows,
                    bool want_contributors, Closed* closed);
  void DecideSummedUp(const wire::TableInfo& table, const DoneMarks& marks, table::SlotTable& rows,
                      Closed* closed);

  Round open_;
  std::vector<Contribution> contributions_;  // by (rank, incarnation)
  uint32_t unfolded_ = 0;
  std::optional<Summed> summed_;
  // Of the last closed round, open_ - 1: a copy of a contribution to it may still come.
  Status last_outcome_;
  std::vector<RefusedPart> last_refused_;
  bool last_all_joined_ = false;
};

// A close record's bytes, but for the sums.
void SaveClosed(const SlotRound::Closed& closed, ByteWriter& out);
bool LoadClosed(ByteReader& in, SlotRound::Closed* closed);

}  // namespace cairn::server
