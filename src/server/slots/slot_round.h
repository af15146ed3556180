// One table's open round in one slot: whether it may be summed up or close, what becomes of it, and what its
// last round's frames are told (docs/internals/consistency.md, rules 15 to 17, 21 and 31 to 34). Pure
// bookkeeping over the slot's rows; the round engine decides when to ask. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/byte_stream.h"
#include "base/ids.h"
#include "cairn/status.h"
#include "cairn/types.h"
#include "server/slots/closed_round.h"
#include "server/slots/contributions.h"
#include "server/slots/done_marks.h"
#include "server/slots/records.h"
#include "server/slots/round_terms.h"
#include "table/slot_table.h"
#include "wire/data.h"

namespace cairn::server {

class SlotRound {
 public:
  Round open() const { return open_; }
  Contributions& contributions() { return contributions_; }
  const Contributions& contributions() const { return contributions_; }

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
  ClosedRound Decide(const wire::TableInfo& table, const DoneMarks& marks, table::SlotTable& rows,
                     bool want_contributors);
  // Does that, here or on a backup. The open round is then `round` + 1.
  void Close(Round round, const ClosedRound& closed, table::SlotTable& rows);

  // For the backups and for a copy: the open round with what is summed up, and what copies of the last
  // round's frames are told. Staged sums are the table's business.
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

 private:
  bool MarkCounts(SlotId slot, const Member& member) const;
  bool AllMarked(SlotId slot, const DoneMarks& marks, Round latest_start) const;
  bool AllDecided(const DoneMarks& marks, Round latest_start) const;
  // The terms that all have given; or who differs.
  Status Agree(const TableSpec& spec, const DoneMarks& marks, RoundTerms* terms) const;
  Status AgreeOnDecision(const TableSpec& spec, const DoneMarks& marks,
                         std::optional<Decision>* decision) const;
  bool SomebodyNotFinite(const DoneMarks& marks) const;
  void DecideAtOnce(const wire::TableInfo& table, const DoneMarks& marks, table::SlotTable& rows,
                    bool want_contributors, ClosedRound* closed);
  void DecideSummedUp(const wire::TableInfo& table, const DoneMarks& marks, table::SlotTable& rows,
                      ClosedRound* closed);

  Round open_;
  Contributions contributions_;
  std::optional<Summed> summed_;
  // Of the last closed round, open_ - 1: a copy of a contribution to it may still come.
  Status last_outcome_;
  std::vector<RefusedPart> last_refused_;
  bool last_all_joined_ = false;
};

}  // namespace cairn::server
