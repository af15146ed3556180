// Frames of sync rounds (docs/internals/consistency.md, rules 15 to 19, 21, 30 and 32 to 34): marks,
// contributions and decisions are checked and recorded, parts of contributions staged once per worker, slot
// and round, and whatever may be summed up or closed then is. Answers are RoundWaits'; what a slot's round is
// made of is SlotRound's. The shard's thread owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cairn/status.h"
#include "server/pull/round_waits.h"
#include "server/replication/primary_side.h"
#include "server/slots/outbox.h"
#include "server/slots/owned_slots.h"
#include "server/slots/request.h"
#include "server/slots/shard_context.h"
#include "server/slots/slot_round.h"
#include "server/slots/tables.h"
#include "wire/data.h"

namespace cairn::server {

class RoundEngine {
 public:
  // All outlive it.
  RoundEngine(const ShardContext& context, Outbox& outbox, OwnedSlots& slots, Tables& tables,
              PrimarySide& primary_side, RoundWaits& waits)
      : context_(context),
        outbox_(outbox),
        slots_(slots),
        tables_(tables),
        primary_side_(primary_side),
        waits_(waits) {}

  // Not ok: no worker of ours sends such a frame, and it has not been answered.
  [[nodiscard]] Status OnFrame(const Request& request);
  // A new state: somebody may be gone for whom rounds have waited.
  void OnState();
  uint64_t rounds() const { return rounds_; }  // closed, of all tables

 private:
  void GiveUpSummedUp(const Request& request, TableState& table);
  Status CheckRound(const Request& request, const TableState& table, const wire::PushView& push,
                    bool marks) const;
  void Await(const Request& request, TableState& table, const wire::PushView& push, bool marks);

  // Contributions. `kept`: the frame, if some part of it has to wait for its turn.
  Status StageParts(const Request& request, TableState& table, const wire::PushView& push,
                    std::shared_ptr<KeptFrame>* kept);
  Status StagePart(const Request& request, TableState& table, const Part& part, Contribution contribution,
                   std::shared_ptr<KeptFrame>* kept);
  void ReopenRound(const Request& request, TableState& table, const wire::PushParams& params,
                   const Part& part);  // a planted bug's

  // Closing.
  static bool NothingToDo(const TableState& table);
  void Reconsider(TableState& table);                                            // every slot
  void Reconsider(TableState& table, std::span<const wire::SlotEntry> entries);  // these
  void CloseWhatMay(TableState& table, uint32_t local);
  void SumUp(TableState& table, uint32_t local);
  void CloseOnce(TableState& table, uint32_t local);
  void Wake(TableState& table, Round lowest_before);

  const ShardContext& context_;
  Outbox& outbox_;
  OwnedSlots& slots_;
  Tables& tables_;
  PrimarySide& primary_side_;
  RoundWaits& waits_;
  uint64_t rounds_ = 0;
  std::vector<uint32_t> moved_;  // slots summed up or closed, of the event under way
};

}  // namespace cairn::server
