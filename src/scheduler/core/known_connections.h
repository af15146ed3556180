// With several schedulers: the connections that a leading one has heard of, and those of them that ended
// while it was away (leadership.h) and could not be told. No I/O; used by the scheduler's node, on its loop.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace cairn::scheduler {

class KnownConnections {
 public:
  // The scheduler hears of it.
  void Deliver(ConnId conn) { known_.insert(conn); }
  // It is closed because the scheduler does not answer now.
  void SendAway(ConnId conn) {
    if (known_.erase(conn) > 0) ended_.push_back(conn);
  }
  // It has ended. True: the scheduler, which `answers`, is to be told.
  bool End(ConnId conn, bool answers) {
    if (known_.erase(conn) == 0) return false;
    if (!answers) ended_.push_back(conn);
    return answers;
  }
  // The scheduler answers again, and is to be told of these.
  std::vector<ConnId> TakeEnded() { return std::exchange(ended_, {}); }
  // It leads no more: all are to be closed, and nobody is told of any.
  std::set<ConnId> TakeAll() {
    ended_.clear();
    return std::exchange(known_, {});
  }

 private:
  std::set<ConnId> known_;
  std::vector<ConnId> ended_;
};

}  // namespace cairn::scheduler
