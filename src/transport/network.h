// What a role may do to the world: connect, send, close. Roles (scheduler, shard, client) are
// state machines without sockets, clocks or threads: a driver calls their On… functions with the
// time, and they act through this interface. `tcp` (which also goes through shared memory, `shm`, to
// peers on the same host) and `sim` both implement it.
//
// A connection delivers frames whole or not at all. Roles never rely on more: frames may be lost
// with a connection, come twice or, across connections, in any order.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "wire/cluster_state.h"
#include "wire/frame.h"

namespace cairn {

class Network {
 public:
  virtual ~Network() = default;
  // Starts to connect. The driver later calls OnConnected(conn) or OnDisconnect(conn) of the role
  // that asked. Frames sent before OnConnected are dropped.
  virtual ConnId Connect(const wire::Endpoint& to) = 0;
  // Queues a frame, or writes it at once; of one that is transient nothing is looked at later. Never
  // blocks and never fails: a lost connection is told by OnDisconnect.
  virtual void Send(ConnId conn, wire::FramePtr frame) = 0;
  // No OnDisconnect follows. Harmless on an unknown connection.
  virtual void Close(ConnId conn) = 0;
  // Whether its bytes go through memory that both sides share: nothing can damage them on the way.
  virtual bool SharesMemory(ConnId) const { return false; }
  // Whether the peer is on the host that this node is on, as far as addresses tell.
  virtual bool SameHost(ConnId) const { return false; }
  // Whether it goes by TCP only because the peer's listener on this host did not answer in time when it
  // was asked for shared memory: it may have been stopped, and another connection would get it.
  virtual bool FellBack(ConnId) const { return false; }
  // Rises while frames larger than the pipe are under way on the connection, in either direction:
  // a peer that is only slow is not silent. 0 where frames move in one step.
  virtual uint64_t BulkProgress(ConnId) const { return 0; }
};

}  // namespace cairn
