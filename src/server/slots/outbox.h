// How the parts of a shard send frames to workers and to primaries; it counts the bytes. The streams to
// backups send on their own (replication/replica_stream.h). The shard's thread owns it.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "cairn/status.h"
#include "server/slots/shard_context.h"
#include "transport/network.h"
#include "wire/frame.h"

namespace cairn::server {

class Outbox {
 public:
  // Both outlive it.
  Outbox(const ShardContext& context, Network& network) : context_(context), network_(network) {}

  void Send(ConnId conn, wire::FramePtr frame);
  // The answer to a request that failed. Its version tells a client with an older state of the newer one.
  void SendError(ConnId conn, const wire::FrameHeader& request, const Status& error);
  // Nothing more is heard from there: no disconnect follows.
  void Close(ConnId conn) { network_.Close(conn); }
  uint64_t bytes_sent() const { return bytes_sent_; }

 private:
  const ShardContext& context_;
  Network& network_;
  uint64_t bytes_sent_ = 0;
};

}  // namespace cairn::server
