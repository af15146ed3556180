#include "transport/tcp/connection.h"

#include <sys/socket.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "transport/tcp/sockets.h"
#include "wire/data.h"

namespace cairn::transport {
namespace asio = boost::asio;
using boost::system::error_code;

namespace {
std::string PeerName(const asio::ip::tcp::socket& socket) {
  error_code error;
  const auto endpoint = socket.remote_endpoint(error);
  if (error) return "a peer that has gone";
  return endpoint.address().to_string() + ":" + std::to_string(endpoint.port());
}
}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, BufferPool& pool, const ConnectionOptions& options)
    : socket_(std::move(socket)),
      linger_(socket_.get_executor()),
      pool_(pool),
      options_(options),
      reader_(pool, options.max_body_bytes),
      peer_(PeerName(socket_)) {
  TuneSocket(socket_.native_handle());
  error_code ignored;
  socket_.non_blocking(true, ignored);
}

void Connection::Start(Owner* owner) {
  owner_ = owner;
  Read();
}

void Connection::StartWith(Owner* owner, wire::InFrame frame, std::span<const std::byte> rest) {
  const auto self = shared_from_this();
  owner_ = owner;
  reader_.Preload(rest);
  owner_->OnFrame(*this, frame);
  Deliver();
}

void Connection::Send(wire::FramePtr frame) {
  if (state_ != State::kOpen) return;
  queue_.Push(std::move(frame));
  ScheduleFlush();
}

bool Connection::OverBound() const {
  return options_.stop_reading_at_bytes > 0 && queue_.bytes() > options_.stop_reading_at_bytes;
}

// Hands out every whole frame, then reads on. The caller holds a reference to this.
void Connection::Deliver() {
  wire::InFrame frame;
  while (state_ == State::kOpen) {
    if (OverBound()) {
      paused_ = true;  // Flush goes on from here
      return;
    }
    Result<bool> next = reader_.Next(&frame);
    if (!next.ok()) return BadFrame(next.status());
    if (!*next) break;
    owner_->OnFrame(*this, frame);
  }
  if (state_ != State::kClosed) Read();
}

void Connection::Read() {
  if (reading_) return;
  reading_ = true;
  const auto space = reader_.Space();
  const std::array<asio::mutable_buffer, 2> buffers{asio::buffer(space[0].data(), space[0].size()),
                                                    asio::buffer(space[1].data(), space[1].size())};
  socket_.async_read_some(buffers, [self = shared_from_this()](const error_code& error, size_t bytes) {
    self->OnRead(error, bytes);
  });
}

void Connection::OnRead(const error_code& error, size_t bytes) {
  reading_ = false;
  if (state_ == State::kClosed) return;
  if (error) {
    return Lost(Status(Code::kUnavailable, error == asio::error::eof ? peer_ + " closed the connection"
                                                                     : peer_ + ": " + error.message()));
  }
  bytes_in_ += bytes;
  if (state_ != State::kOpen) {  // closing: what still comes is not wanted
    reader_.Reset();
    return Read();
  }
  reader_.Filled(bytes);
  if (reader_.in_body()) bulk_progress_ += bytes;
  Deliver();
}

// Frames sent by one handler leave together: the flush runs after it.
void Connection::ScheduleFlush() {
  if (flush_scheduled_) return;
  flush_scheduled_ = true;
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    self->flush_scheduled_ = false;
    self->Flush();
  });
}

void Connection::Flush() {
  size_t turn = 0;
  while (state_ != State::kClosed && !queue_.empty()) {
    if (turn >= kWriteTurnBytes) return ScheduleFlush();
    iovec pieces[kWritePieces];
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = queue_.Gather(pieces, kWritePieceBytes);
    const ssize_t written = ::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      flush_scheduled_ = true;
      socket_.async_wait(asio::ip::tcp::socket::wait_write, [self = shared_from_this()](const error_code&) {
        self->flush_scheduled_ = false;
        self->Flush();
      });
      break;
    }
    if (written < 0) return Lost(Status(Code::kUnavailable, peer_ + ": " + std::strerror(errno)));
    queue_.Advance(static_cast<size_t>(written));
    bytes_out_ += static_cast<size_t>(written);
    if (!queue_.empty()) bulk_progress_ += static_cast<size_t>(written);
    turn += static_cast<size_t>(written);
  }
  OnFlushed();
}

// After each turn of writing.
void Connection::OnFlushed() {
  if (state_ == State::kFlushing && queue_.empty()) {
    // A close with unread bytes would reset the connection and could take the last frames with
    // it. So: no more from us, then read until the peer closes.
    state_ = State::kDraining;
    error_code ignored;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  }
  if (paused_ && state_ == State::kOpen && queue_.bytes() <= options_.stop_reading_at_bytes / 2) {
    paused_ = false;
    Deliver();
  }
}

void Connection::BadFrame(const Status& why) {
  queue_.Push(wire::EncodeError(reader_.bad_header(), why, pool_));
  Owner* owner = std::exchange(owner_, nullptr);
  CloseAfterFlush();
  if (owner != nullptr) owner->OnClosed(*this, why.With(peer_));
}

void Connection::Lost(const Status& why) {
  Owner* owner = std::exchange(owner_, nullptr);
  CloseNow();
  if (owner != nullptr) owner->OnClosed(*this, why);
}

void Connection::CloseNow() {
  owner_ = nullptr;
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  queue_.Clear();
  linger_.cancel();
  error_code ignored;
  socket_.close(ignored);
}

void Connection::CloseAfterFlush() {
  owner_ = nullptr;
  if (state_ != State::kOpen) return;
  state_ = State::kFlushing;
  if (!reading_) {
    reader_.Reset();
    Read();
  }
  ScheduleFlush();
  linger_.expires_after(std::chrono::milliseconds(kLingerMs));
  linger_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error) self->CloseNow();
  });
}

int Connection::Release(Buffer* rest) {
  CAIRN_CHECK(state_ == State::kOpen && !reading_ && queue_.empty());
  const std::span<const std::byte> unread = reader_.rest();
  if (!unread.empty()) {
    *rest = pool_.Get(unread.size());
    std::memcpy(rest->data(), unread.data(), unread.size());
  }
  owner_ = nullptr;
  state_ = State::kClosed;
  error_code error;
  return socket_.release(error);
}

}  // namespace cairn::transport
