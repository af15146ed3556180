#include "transport/tcp/tcp_connection.h"

#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "transport/tcp/sockets.h"

namespace cairn::transport {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {
std::string PeerName(const tcp::socket& socket) {
  error_code error;
  const auto endpoint = socket.remote_endpoint(error);
  if (error) return "a peer that has gone";
  return endpoint.address().to_string() + ":" + std::to_string(endpoint.port());
}
}  // namespace

std::shared_ptr<Connection> TcpConnection::Make(DetachedPipe pipe, Loop& loop, BufferPool& pool,
                                                const ConnectionOptions& options) {
  tcp::socket socket(loop.context());
  error_code error;
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (getsockname(pipe.fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return nullptr;
  socket.assign(address.ss_family == AF_INET6 ? tcp::v6() : tcp::v4(), pipe.fd, error);
  if (error) return nullptr;  // `pipe` still owns the descriptor
  (void)pipe.TakeDescriptor();
  return std::make_shared<TcpConnection>(std::move(socket), loop, pool, options);
}

TcpConnection::TcpConnection(tcp::socket socket, Loop& loop, BufferPool& pool,
                             const ConnectionOptions& options)
    : Connection(loop, pool, options, PeerName(socket)), socket_(std::move(socket)) {
  TuneSocket(socket_.native_handle());
  error_code ignored;
  socket_.non_blocking(true, ignored);
}

void TcpConnection::ReadInto(const std::array<std::span<std::byte>, 2>& space) {
  const std::array<asio::mutable_buffer, 2> buffers{asio::buffer(space[0].data(), space[0].size()),
                                                    asio::buffer(space[1].data(), space[1].size())};
  const auto on_read = [self = Self()](const error_code& error, size_t bytes) {
    if (!error) return self->OnRead(bytes);
    if (self->closed()) return;
    self->Lost(Status(Code::kUnavailable, error == asio::error::eof ? self->peer() + " closed the connection"
                                                                    : self->peer() + ": " + error.message()));
  };
  socket_.async_read_some(buffers, loop_.InTurn(on_read));
}

Result<size_t> TcpConnection::Write(std::span<const iovec> pieces) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  while (true) {
    const ssize_t written = ::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written >= 0) return static_cast<size_t>(written);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
    if (errno != EINTR) return Status(Code::kUnavailable, peer() + ": " + std::strerror(errno));
  }
}

// Not by the socket's executor, which can be any: that would take memory from the heap.
void TcpConnection::FlushSoon() {
  asio::post(loop_.context(), loop_.InTurn([self = Self()] { self->Flush(); }));
}

void TcpConnection::FlushWithRoom() {
  socket_.async_wait(tcp::socket::wait_write,
                     loop_.InTurn([self = Self()](const error_code&) { self->Flush(); }));
}

// A close with unread bytes would reset the connection and could take the last frames with it. So:
// no more from us, then read until the peer closes.
void TcpConnection::AfterLastWrite() {
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
}

void TcpConnection::ClosePipe() {
  error_code ignored;
  socket_.close(ignored);
}

DetachedPipe TcpConnection::DetachPipe() {
  error_code error;
  return {socket_.release(error), nullptr};
}

}  // namespace cairn::transport
