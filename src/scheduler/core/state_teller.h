// Which version of the state each node holds, and who is told which: the newest goes to everybody, as a
// difference to what the node has where that was told not long ago. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "base/ids.h"
#include "base/log.h"
#include "scheduler/core/connections.h"
#include "scheduler/core/journal.h"
#include "wire/cluster_state.h"
#include "wire/frame.h"

namespace cairn::scheduler {

class StateTeller {
 public:
  // Nodes that are not further behind than `recent_states` get differences.
  StateTeller(const Journal& journal, Connections& connections, size_t recent_states, const LogLine& log)
      : journal_(journal), connections_(connections), recent_states_(recent_states), log_(log) {}

  // There is a new state, which is to be told.
  void OnCommitted() { untold_ = true; }
  void OnNewConnection(Incarnation node) { nodes_[node].sent = StateVersion(0); }
  void Forget(Incarnation node) { nodes_.erase(node); }

  // What a node says that it holds. True: it is newer than what it has said before.
  bool Take(Incarnation node, StateVersion version);
  // A version that has not been made yet: the log has lost records. Said once of a node.
  void WarnIfAhead(Incarnation node, const std::string& name, StateVersion version);
  StateVersion Holds(Incarnation node) const;
  bool ServersHold(StateVersion version) const;
  // Whether the newest has been sent on its last connection.
  bool HasBeenSent(Incarnation node) const;

  // Tells everybody, if there is something new.
  void Broadcast(int64_t now_us);
  // The newest state, unless it was sent on this connection a moment ago.
  void SendIfBehind(Incarnation node, int64_t now_us);
  void SendToAllBehind(int64_t now_us);

 private:
  struct Node {
    StateVersion holds;
    StateVersion sent;  // on this connection
    int64_t sent_us = 0;
    bool told_ahead = false;
  };
  bool HoldsBack(int64_t now_us) const;  // until more has come together
  const wire::ClusterState* FindRecent(StateVersion version) const;
  const wire::FramePtr& FrameFor(StateVersion has);
  void SendTo(ConnId conn, Node& node, StateVersion has, int64_t now_us);

  const Journal& journal_;
  Connections& connections_;
  const size_t recent_states_;
  const LogLine& log_;
  std::map<Incarnation, Node> nodes_;
  std::deque<wire::ClusterState> recent_;          // the last few that were told, the newest last
  std::map<StateVersion, wire::FramePtr> frames_;  // the newest state, by what the node has
  StateVersion frames_of_;
  bool untold_ = false;  // the newest state has not been broadcast
  int64_t told_us_ = INT64_MIN / 2;
};

}  // namespace cairn::scheduler
