// What servers have said about the owners of their slots and nobody has acted on yet, and which of them want
// to leave (rules 43 and 45). One thread.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/ids.h"
#include "scheduler/core/presence.h"
#include "scheduler/rules/durable.h"
#include "scheduler/rules/repeated_word.h"
#include "wire/control.h"

namespace cairn::scheduler {

class OwnerNews {
 public:
  struct Work {
    bool any = false;
    bool urgent = false;  // a slot stands still until it is done
  };
  // What has been done with it in one record.
  struct Applied {
    bool any = false;
    std::map<uint32_t, uint32_t> slow, diverged;  // slots that a server was dropped from
    std::vector<uint32_t> slow_but_needed;        // servers
    uint32_t caught_up = 0;
  };

  OwnerNews(int64_t heartbeat_us, const Presence& presence)
      : heartbeat_us_(heartbeat_us), presence_(presence) {}

  // True: a record may follow from it.
  bool Take(Incarnation server, const wire::Heartbeat& heartbeat, int64_t now_us);
  void Forget(Incarnation server) { nodes_.erase(server); }

  Work Waiting(const wire::ClusterState& state) const;
  // Puts into the next record what may be put there; the rest stays.
  Applied Apply(const wire::ClusterState& state, DurableState& next, int64_t now_us);

  bool WantsToLeave(Incarnation server) const;
  // It was too slow: no copy is begun to it for a while.
  bool Rests(Incarnation server, int64_t now_us) const;
  // True the first time: that it is too slow, but needed, has not been said yet.
  bool NoteSlowButNeeded(Incarnation server);

 private:
  struct Node {
    std::vector<wire::SlotNews> news;
    StateVersion held;  // the version that its sender held
    RepeatedWord slow;  // that some backup is slow
    bool wants_to_leave = false;
    bool told_slow = false;
    int64_t rest_until_us = 0;
  };
  const int64_t heartbeat_us_;
  const Presence& presence_;
  std::map<Incarnation, Node> nodes_;
};

}  // namespace cairn::scheduler
