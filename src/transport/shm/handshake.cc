#include "transport/shm/handshake.h"

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <utility>

#include "transport/shm/rendezvous.h"

namespace cairn::transport::shm {
namespace asio = boost::asio;
using asio::local::stream_protocol;
using boost::system::error_code;

Handshake::Handshake(Loop& loop, const PipeChoice& choice, Done done)
    : loop_(loop), choice_(choice), done_(std::move(done)), socket_(loop.context()), timer_(loop.context()) {}

void Handshake::Start(const std::vector<std::string>& names) {
  Status found(Code::kUnavailable, "it is not on this host");
  bool answered = false;  // what somebody says who is there says more than that nobody is elsewhere
  for (const std::string& name : names) {
    Status tried = ConnectTo(name);
    const auto peer = PeerOf(socket_.native_handle());
    const bool there = peer && peer->pid > 0;
    if (tried.ok() || there || !answered) found = std::move(tried);
    if (found.ok()) break;
    answered |= there;
  }
  if (!found.ok()) return Finish(found);
  auto self = shared_from_this();
  timer_.expires_after(std::chrono::milliseconds(kHandshakeMs));
  timer_.async_wait(loop_.InTurn([self](const error_code& cancelled) {
    if (!cancelled) self->Finish(Status(Code::kDeadlineExceeded, "its listener does not answer"));
  }));
  const auto on_answer = [self](const error_code& error) {
    if (!error && self->done_) self->OnAnswer();
  };
  socket_.async_wait(stream_protocol::socket::wait_read, loop_.InTurn(on_answer));
}

// A Unix socket connects at once or not at all.
Status Handshake::ConnectTo(const std::string& name) {
  error_code error;
  if (socket_.is_open()) socket_.close(error);
  socket_.open(stream_protocol(), error);
  if (!error) socket_.native_non_blocking(true, error);
  if (!error) socket_.connect(stream_protocol::endpoint(name), error);
  if (error) return {Code::kUnavailable, "nobody listens on @" + name.substr(1) + ": " + error.message()};
  const auto peer = PeerOf(socket_.native_handle());
  if (!peer || (!choice_.other_users && !IsOurUser(*peer))) {
    return {Code::kUnavailable, "it belongs to another user: set CAIRN_SHM_USERS=any on both sides"};
  }
  Result<Memory> own = Memory::Create(choice_.ring_bytes);
  if (!own.ok()) return own.status();
  if (Status sent = SendSetup(socket_.native_handle(), *own); !sent.ok()) return sent;
  own->CloseDescriptor();
  own_.emplace(std::move(*own));
  return Status::Ok();
}

void Handshake::OnAnswer() {
  Result<Memory> peers = ReceiveSetup(socket_.native_handle());
  if (!peers.ok()) return Finish(peers.status());
  auto rings = std::make_unique<RingPair>(std::move(*own_), std::move(*peers));
  error_code error;
  const int fd = socket_.release(error);
  Finish(DetachedPipe(fd, std::move(rings)));
}

void Handshake::Finish(Result<DetachedPipe> result) {
  if (!done_) return;
  const Done done = std::exchange(done_, nullptr);
  Cancel();
  done(std::move(result));
}

void Handshake::Cancel() {
  done_ = nullptr;
  timer_.cancel();
  error_code ignored;
  if (socket_.is_open()) socket_.close(ignored);
}

}  // namespace cairn::transport::shm
