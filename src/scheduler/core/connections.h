// Which node is on which connection, and what goes out on it. A node is here from its registration, or from
// the start of this process, until it is dismissed; a worker that has left, while it is connected. One
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/ids.h"
#include "cairn/status.h"
#include "scheduler/core/callers.h"
#include "transport/network.h"
#include "wire/control.h"

namespace cairn::scheduler {

class Connections {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnNewConnection(Incarnation node) = 0;
    // Whoever keeps something about the node forgets it.
    virtual void OnDismissed(Incarnation node) = 0;
  };
  struct Node {
    ConnId conn;             // 0: not connected
    int64_t closed_us = -1;  // when its last connection went; -1: never, or it has one
  };
  struct Options {
    uint32_t max_callers = 1024;  // connections that are no node's
    int64_t caller_idle_us = 30'000'000;
  };

  // All of them must outlive it.
  Connections(Network& network, BufferPool& pool, const Options& options, Listener& listener)
      : network_(network),
        pool_(pool),
        listener_(listener),
        max_callers_(options.max_callers),
        callers_(options.max_callers, options.caller_idle_us) {}

  // --- nodes ---
  void Expect(Incarnation node) { nodes_[node]; }
  // The node has spoken on this connection. Its newest connection is the one that it reads.
  void Bind(Incarnation node, ConnId conn, int64_t now_us);
  const std::map<Incarnation, Node>& nodes() const { return nodes_; }
  ConnId Of(Incarnation node) const;                        // 0: not connected, or not here
  std::optional<Incarnation> SpeakerOn(ConnId conn) const;  // the node that the connection is bound to
  bool SameHost(ConnId conn) const { return network_.SameHost(conn); }
  // Takes the node out; if it is connected, this is the last that it hears.
  void Dismiss(Incarnation node, const wire::ControlMessage& last);
  void Retire(Incarnation node, const std::string& why);
  // Requires that it is not connected.
  void Forget(Incarnation node);

  // --- what is sent ---
  void Send(ConnId conn, const wire::ControlMessage& message);
  void Send(ConnId conn, const wire::FramePtr& frame);
  wire::FramePtr Encode(const wire::ControlMessage& message) const {
    return wire::EncodeControl(message, pool_);
  }
  void Refuse(ConnId conn, Code code, std::string text, uint64_t request = 0);
  // Refuses a node, unless the connection is known to be another's: then it was a stray copy of a
  // dead one's message, and a refusal says to nobody in particular that it is dead.
  void RefuseNode(ConnId conn, Incarnation node, Code code, std::string text);
  // Nothing may be said any more.
  void Mute() { muted_ = true; }

  // --- connections ---
  void OnDisconnect(ConnId conn, int64_t now_us);
  void Close(ConnId conn, int64_t now_us);
  // It has spoken. Beyond the bound of callers the longest silent are closed at once, or one that opens many
  // would have them all until the next tick.
  void NoteSpoken(ConnId conn, int64_t now_us);
  void CloseLateCallers(int64_t now_us);

 private:
  void Unbind(ConnId conn, int64_t now_us);

  Network& network_;
  BufferPool& pool_;
  Listener& listener_;
  std::map<Incarnation, Node> nodes_;
  std::map<ConnId, Incarnation> bound_;  // of the nodes that are connected
  const uint32_t max_callers_;
  Callers callers_;  // connections that are not in bound_
  bool muted_ = false;
};

}  // namespace cairn::scheduler
