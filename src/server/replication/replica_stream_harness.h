// For the tests of the stream between shard threads: a network that only records, and operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "server/replication/replica_stream.h"

namespace cairn::server {

class StreamNetwork final : public Network {
 public:
  explicit StreamNetwork(BufferPool& pool) : pool_(pool) {}
  ConnId Connect(const wire::Endpoint& to) override {
    endpoints.push_back(to);
    return ConnId{endpoints.size()};
  }
  void Send(ConnId conn, wire::FramePtr frame) override { sent[conn].push_back(Parsed(*frame)); }
  void Close(ConnId conn) override { closed.push_back(conn); }
  uint64_t BulkProgress(ConnId) const override { return bulk_progress; }
  bool FellBack(ConnId) const override { return fell_back; }

  wire::InFrame Parsed(const wire::Frame& frame) {
    const Buffer bytes = wire::Flatten(frame, pool_);
    return std::move(wire::Parse(bytes.bytes(), wire::kMaxBodyBytes, pool_)).value();
  }

  std::map<ConnId, std::vector<wire::InFrame>> sent;
  std::vector<wire::Endpoint> endpoints;
  std::vector<ConnId> closed;
  uint64_t bulk_progress = 0;
  bool fell_back = false;  // to TCP

 private:
  BufferPool& pool_;
};

// One operation for `slot`, of roughly `payload_bytes`.
inline void AddOp(ReplicaSender& sender, uint32_t slot, size_t payload_bytes = 8) {
  wire::OpHeader op;
  op.kind = wire::OpKind::kClose;
  op.slot = slot;
  op.epoch = 1;
  const std::vector<std::byte> payload(payload_bytes, std::byte{1});
  sender.batch().Add(op, nullptr, {}, {}, payload);
}

}  // namespace cairn::server
