// When this process may go: the job is over, and everybody who can be told knows it. Servers confirm;
// workers of a failed job have been heard with the state that says so; workers that left close when they
// have their LeaveReply, or come back for it if the connection broke. Each is awaited for as long as it
// could still be alive. One thread.
#pragma once

#include <cstdint>
#include <set>

#include "base/ids.h"
#include "base/log.h"
#include "scheduler/core/connections.h"
#include "scheduler/core/journal.h"
#include "scheduler/core/presence.h"
#include "scheduler/core/state_teller.h"

namespace cairn::scheduler {

class Farewell {
 public:
  Farewell(Journal& journal, const Connections& connections, const Presence& presence,
           const StateTeller& teller, const LogLine& log)
      : journal_(journal), connections_(connections), presence_(presence), teller_(teller), log_(log) {}

  // A job that was over at the start: those that left may come back until then.
  void StayUntil(int64_t us) { stay_until_us_ = us; }
  // The server has seen the end of the job and is leaving.
  void TakeConfirmation(Incarnation server) { confirmed_.insert(server); }
  void Forget(Incarnation node) { confirmed_.erase(node); }
  void Update(int64_t now_us);
  bool finished() const { return finished_; }

 private:
  bool Awaits(Incarnation node, const Connections::Node& connection, int64_t now_us) const;
  void NoteEndTold();

  Journal& journal_;
  const Connections& connections_;
  const Presence& presence_;
  const StateTeller& teller_;
  const LogLine& log_;
  std::set<Incarnation> confirmed_;
  int64_t stay_until_us_ = 0;
  bool finished_ = false;
};

}  // namespace cairn::scheduler
