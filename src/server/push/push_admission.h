// Numbered pushes (docs/internals/consistency.md, rules 13, 14, 31 and 36): each slot's part is checked whole
// and then applied, straight from the receive buffer, exactly once; then it goes to the backups, and the
// answer to the commit gate. The shard's thread owns it.
#pragma once

#include <cstdint>
#include <memory>

#include "base/buffer.h"
#include "cairn/status.h"
#include "server/replication/commit_gate.h"
#include "server/replication/primary_side.h"
#include "server/slots/outbox.h"
#include "server/slots/owned_slots.h"
#include "server/slots/part_problems.h"
#include "server/slots/records.h"
#include "server/slots/request.h"
#include "server/slots/shard_context.h"
#include "server/slots/tables.h"
#include "wire/data.h"

namespace cairn::server {

class PushAdmission {
 public:
  // All outlive it.
  PushAdmission(const ShardContext& context, Outbox& outbox, OwnedSlots& slots, Tables& tables,
                PrimarySide& primary_side, CommitGate& gate)
      : context_(context),
        outbox_(outbox),
        slots_(slots),
        tables_(tables),
        primary_side_(primary_side),
        gate_(gate) {}

  // Not ok: no worker of ours sends such a frame, and it has not been answered.
  [[nodiscard]] Status OnPush(const Request& request);
  uint64_t pushes() const { return pushes_; }

 private:
  Status Take(const Request& request);
  void TakePart(const Request& request, TableState* table, const Status& shape,
                const wire::PushParams& params, const Part& part);
  void RefusePart(const Request& request, const Part& part, const Hyper& hyper, const Status& why);
  void Observe(const Request& request, const Part& part, Outcome outcome, Code code, const Hyper& hyper,
               Position position) const;
  // Planted bugs: a part is lost now and then; a push of duplicates alone is answered at once.
  bool LosesPart();
  void NoteOnlyDuplicates(bool only);
  bool AnswersAtOnce() const;

  const ShardContext& context_;
  Outbox& outbox_;
  OwnedSlots& slots_;
  Tables& tables_;
  PrimarySide& primary_side_;
  CommitGate& gate_;
  uint64_t pushes_ = 0;
  // Of the push under way.
  PartProblems problems_;
  std::shared_ptr<const Buffer> body_;  // where there are backups: what is sent on to them lies in it
#ifdef CAIRN_WITH_PLANTED_BUGS
  bool only_duplicates_ = false;
  uint64_t parts_pushed_ = 0;
#endif
};

}  // namespace cairn::server
