// Connections of workers to a shard (docs/internals/consistency.md, rules 11 and 12): the handshake, the
// fence that each of their frames passes, and what they say of the cluster's state. The shard's thread owns
// it.
#pragma once

#include <map>
#include <memory>

#include "base/ids.h"
#include "cairn/status.h"
#include "server/slots/live_clients.h"
#include "server/slots/news_flag.h"
#include "server/slots/outbox.h"
#include "server/slots/shard_context.h"
#include "wire/cluster_state.h"
#include "wire/control.h"
#include "wire/frame.h"

namespace cairn::server {

class WorkerConnections {
 public:
  // All outlive it.
  WorkerConnections(const ShardContext& context, Outbox& outbox, LiveClients& clients, NewsFlag& news)
      : context_(context), outbox_(outbox), clients_(clients), news_(news) {}

  // Answers a good Hello and lets the connection in.
  Status OnHello(ConnId conn, const wire::Hello& hello);
  // The incarnation that has said a good Hello here; null if none has.
  const Incarnation* Find(ConnId conn) const;
  void Forget(ConnId conn) { connections_.erase(conn); }
  size_t size() const { return connections_.size(); }

  // May this frame of a known connection be dealt with? `client`: whose it is, if it may.
  Status Fence(const wire::InFrame& frame, const LiveClient** client);

  // True if the message of a known connection was about the cluster's state.
  bool ComparesStates(ConnId conn, wire::ControlMessage& message);
  // The newest state that a worker has passed on, if it is newer than the shard's own; else null.
  const std::shared_ptr<const wire::ClusterState>& passed_state() const { return passed_; }
  void OnState();  // a newer one from the server's control side

 private:
  Status CheckHello(const wire::Hello& hello) const;
  Status CheckFrame(const wire::FrameHeader& header, const LiveClient** client);
  void TellFenced(const wire::InFrame& frame, const Status& why) const;

  const ShardContext& context_;
  Outbox& outbox_;
  LiveClients& clients_;
  NewsFlag& news_;
  std::map<ConnId, Incarnation> connections_;  // those that have said a good Hello
  std::shared_ptr<const wire::ClusterState> passed_;
};

}  // namespace cairn::server
