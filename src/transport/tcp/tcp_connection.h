// A connection over a TCP socket. Internal to the transport.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <memory>

#include "transport/tcp/connection.h"

namespace cairn::transport {

class TcpConnection final : public Connection {
 public:
  static std::shared_ptr<Connection> Make(DetachedPipe pipe, Loop& loop, BufferPool& pool,
                                          const ConnectionOptions& options);
  TcpConnection(boost::asio::ip::tcp::socket socket, Loop& loop, BufferPool& pool,
                const ConnectionOptions& options);
  bool is_shm() const override { return false; }

 protected:
  void ReadInto(const std::array<std::span<std::byte>, 2>& space) override;
  Result<size_t> Write(std::span<const iovec> pieces) override;
  void FlushSoon() override;
  void FlushWithRoom() override;
  void AfterLastWrite() override;
  void ClosePipe() override;
  DetachedPipe DetachPipe() override;

 private:
  std::shared_ptr<TcpConnection> Self() {
    return std::static_pointer_cast<TcpConnection>(shared_from_this());
  }
  boost::asio::ip::tcp::socket socket_;
};

}  // namespace cairn::transport
