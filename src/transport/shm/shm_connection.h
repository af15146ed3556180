// A connection through shared memory: bytes in two rings (ring_pair.h), and a Unix socket beside
// them that wakes a loop that blocks and says when the peer has gone. Internal to the transport.
#pragma once

#include <boost/asio/local/stream_protocol.hpp>
#include <memory>
#include <string>

#include "transport/tcp/connection.h"
#include "transport/tcp/loop.h"

namespace cairn::transport::shm {

class ShmConnection final : public Connection, public Polled {
 public:
  static std::shared_ptr<Connection> Make(DetachedPipe pipe, Loop& loop, BufferPool& pool,
                                          const ConnectionOptions& options);
  ShmConnection(boost::asio::local::stream_protocol::socket socket, std::unique_ptr<RingPair> rings,
                std::string peer, Loop& loop, BufferPool& pool, const ConnectionOptions& options);
  bool is_shm() const override { return true; }

 protected:
  void ReadInto(const std::array<std::span<std::byte>, 2>& space) override;
  Result<size_t> Write(std::span<const iovec> pieces) override;
  void FlushSoon() override { flush_soon_ = true; }
  void FlushWithRoom() override { flush_with_room_ = true; }
  void AfterLastWrite() override;
  void ClosePipe() override;
  DetachedPipe DetachPipe() override;

  bool Poll() override;
  void AskToBeWoken() override;
  bool HasWork() override;
  bool Writing() const override { return queued_bytes() > 0; }
  void Awake() override;

 private:
  void WaitForBell();
  void OnBell();
  void ReadRing();
  void WakePeer();
  bool RoomIsWorthIt();
  Status Broken() const;

  boost::asio::local::stream_protocol::socket socket_;
  std::unique_ptr<RingPair> rings_;  // null: detached
  std::array<std::span<std::byte>, 2> space_;
  bool reading_into_space_ = false;
  bool flush_soon_ = false;
  bool flush_with_room_ = false;
  bool peer_gone_ = false;  // what it wrote before is still to be read
};

}  // namespace cairn::transport::shm
