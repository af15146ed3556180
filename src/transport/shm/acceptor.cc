#include "transport/shm/acceptor.h"

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <utility>

#include "transport/shm/handshake.h"
#include "transport/shm/rendezvous.h"
#include "transport/tcp/sockets.h"

namespace cairn::transport::shm {
namespace asio = boost::asio;
using asio::local::stream_protocol;
using boost::system::error_code;

namespace {
constexpr int kBacklog = 4096;
constexpr int64_t kAcceptRetryMs = 100;  // after an accept that failed (no descriptor left)
}  // namespace

Result<std::unique_ptr<Acceptor>> Acceptor::Open(Loop& loop, AcceptorOptions options) {
  stream_protocol::acceptor acceptor(loop.context());
  error_code error;
  acceptor.open(stream_protocol(), error);
  if (!error) acceptor.bind(stream_protocol::endpoint(options.name), error);
  if (!error) acceptor.listen(kBacklog, error);
  if (error) {
    return Status(Code::kUnavailable,
                  "can't listen on the Unix socket @" + options.name.substr(1) + ": " + error.message());
  }
  return std::make_unique<Acceptor>(loop, std::move(options), std::move(acceptor));
}

Acceptor::Acceptor(Loop& loop, AcceptorOptions options, stream_protocol::acceptor acceptor)
    : loop_(loop), options_(std::move(options)), acceptor_(std::move(acceptor)), retry_(loop.context()) {}

Acceptor::Waiting::Waiting(stream_protocol::socket s) : socket(std::move(s)), timer(socket.get_executor()) {}

Acceptor::~Acceptor() { Close(); }

void Acceptor::Start(Ready ready, Say say) {
  ready_ = std::move(ready);
  say_ = std::move(say);
  Accept();
}

void Acceptor::Close() {
  *alive_ = false;
  error_code ignored;
  acceptor_.close(ignored);
  retry_.cancel();
  while (!waiting_.empty()) Forget(waiting_.front());
}

void Acceptor::Accept() {
  const auto on_accept = [this, alive = alive_](const error_code& error, stream_protocol::socket socket) {
    if (!*alive) return;
    if (error && error != asio::error::connection_aborted) {
      if (IsTooManyFiles(error.value())) say_("can't accept connections of this host: " + TooManyFiles());
      return Retry();
    }
    if (!error) Add(std::move(socket));
    Accept();
  };
  acceptor_.async_accept(loop_.InTurn(on_accept));
}

void Acceptor::Retry() {
  retry_.expires_after(std::chrono::milliseconds(kAcceptRetryMs));
  retry_.async_wait(loop_.InTurn([this, alive = alive_](const error_code& cancelled) {
    if (*alive && !cancelled) Accept();
  }));
}

void Acceptor::Add(stream_protocol::socket socket) {
  const auto peer = PeerOf(socket.native_handle());
  if (!peer || (!options_.choice.other_users && !IsOurUser(*peer))) return;  // it will use TCP
  while (waiting_.size() >= options_.max_waiting) Forget(waiting_.front());
  auto one = std::make_shared<Waiting>(std::move(socket));
  waiting_.push_back(one);
  one->timer.expires_after(std::chrono::milliseconds(kHandshakeMs));
  one->timer.async_wait(loop_.InTurn([this, alive = alive_, one](const error_code& cancelled) {
    if (*alive && !cancelled) Forget(one);
  }));
  const auto on_readable = [this, alive = alive_, one](const error_code& error) {
    if (*alive && !error && one->socket.is_open()) OnSetup(one);
  };
  one->socket.async_wait(stream_protocol::socket::wait_read, loop_.InTurn(on_readable));
}

void Acceptor::OnSetup(const std::shared_ptr<Waiting>& held) {
  // It may be the only one left: NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
  const std::shared_ptr<Waiting> one = held;
  const int fd = one->socket.native_handle();
  Result<Memory> peers = ReceiveSetup(fd);
  if (!peers.ok()) {
    if (peers.status().code() == Code::kProtocol) say_("closed a connection: " + peers.status().message());
    if (peers.status().code() == Code::kResourceExhausted) say_(peers.status().message());
    return Forget(one);
  }
  Result<Memory> own = Memory::Create(options_.choice.ring_bytes);
  if (!own.ok()) {
    say_(own.status().message());
    return Forget(one);  // it will use TCP
  }
  if (!SendSetup(fd, *own).ok()) return Forget(one);
  own->CloseDescriptor();
  auto rings = std::make_unique<RingPair>(std::move(*own), std::move(*peers));
  error_code error;
  DetachedPipe pipe(one->socket.release(error), std::move(rings));
  Forget(one);
  ready_(std::move(pipe));
}

void Acceptor::Forget(const std::shared_ptr<Waiting>& held) {
  // `held` may be in the list: NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
  const std::shared_ptr<Waiting> one = held;
  one->timer.cancel();
  error_code ignored;
  if (one->socket.is_open()) one->socket.close(ignored);
  waiting_.remove(one);
}

}  // namespace cairn::transport::shm
