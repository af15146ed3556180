// Whether one of several schedulers leads and answers, by what its candidate (metastore/candidacy.h) and
// its own core say. No I/O, no clock of its own; used by the scheduler's node and by the simulator.
//
// A scheduler that leads and can't reach etcd is *away*: another one may lead, so it sends nodes there. One
// that has *resigned* is no candidate until a node finds it, or until the job may be over (then none comes).
#pragma once

#include <cstdint>

namespace cairn::scheduler {

class Leadership {
 public:
  explicit Leadership(int64_t lost_after_us) : lost_after_us_(lost_after_us) {}

  // It leads: a new reign. What was said of the one before does not count any more.
  void OnWon();
  // Etcd has answered, or has not for as long as a lease lasts. May come late, of a reign that is over.
  // True: that changes something.
  bool OnEtcd(bool heard);
  void Resign(int64_t now_us);
  // A node has found it. True: it stands again.
  bool OnFound();
  // True: it has been resigned for so long that it stands again.
  bool OnTick(int64_t now_us);

  bool leads() const { return leads_; }
  bool away() const { return away_; }
  bool answers() const { return leads_ && !away_; }
  bool resigned() const { return resigned_; }

 private:
  const int64_t lost_after_us_;
  bool leads_ = false;
  bool away_ = false;
  bool resigned_ = false;
  int64_t resigned_us_ = 0;
};

}  // namespace cairn::scheduler
