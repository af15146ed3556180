#include "transport/tcp/connector.h"

#include <boost/asio/post.hpp>
#include <chrono>
#include <string>
#include <utility>

#include "transport/shm/rendezvous.h"
#include "transport/tcp/sockets.h"

namespace cairn::transport {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

Connector::Connector(Loop& loop, wire::Endpoint to, const PipeChoice& choice, Done done)
    : loop_(loop),
      to_(std::move(to)),
      choice_(choice),
      done_(std::move(done)),
      resolver_(loop.context()),
      socket_(loop.context()),
      timer_(loop.context()) {}

std::shared_ptr<Connector> Connector::Start(Loop& loop, const wire::Endpoint& to, const PipeChoice& choice,
                                            int64_t timeout_us, Done done) {
  auto connector = std::make_shared<Connector>(loop, to, choice, std::move(done));
  connector->Resolve(timeout_us);
  return connector;
}

void Connector::Resolve(int64_t timeout_us) {
  auto self = shared_from_this();
  timer_.expires_after(std::chrono::microseconds(timeout_us));
  timer_.async_wait(loop_.InTurn([self](const error_code& cancelled) {
    if (!cancelled) self->Finish(Status(Code::kUnavailable, wire::ToString(self->to_) + " does not answer"));
  }));
  error_code not_numeric;
  const auto address = asio::ip::make_address(to_.host, not_numeric);
  if (!not_numeric) {
    const Results one = Results::create(tcp::endpoint(address, to_.port), to_.host, std::to_string(to_.port));
    return asio::post(loop_.context(), loop_.InTurn([self, one] { self->Try(one, one.begin()); }));
  }
  const auto on_found = [self](const error_code& error, const Results& found) {
    if (error) return self->Finish(Status(Code::kNotFound, UnknownHost(self->to_.host, error.message())));
    self->Try(found, found.begin());
  };
  resolver_.async_resolve(to_.host, std::to_string(to_.port), loop_.InTurn(on_found));
}

void Connector::Try(const Results& found, Results::iterator next) {
  if (!done_) return;
  if (choice_.kind == PipeKind::kTcp) return TryTcp(found, next);
  auto self = shared_from_this();
  const auto done = [self, found, next](Result<DetachedPipe> pipe) mutable {
    self->handshake_.reset();
    if (pipe.ok()) return self->Finish(std::move(pipe));
    self->fell_back_ = pipe.status().code() == Code::kDeadlineExceeded;
    if (self->choice_.kind == PipeKind::kAuto) return self->TryTcp(found, next);
    if (++next != found.end()) return self->Try(found, next);
    self->Finish(Status(Code::kUnavailable, "no shared memory with " + wire::ToString(self->to_) + ": " +
                                                pipe.status().message() +
                                                ": with CAIRN_TRANSPORT=auto it is reached by TCP"));
  };
  handshake_ = std::make_shared<shm::Handshake>(loop_, choice_, done);
  const auto handshake = handshake_;  // it may end, and be let go of, inside Start
  handshake->Start(shm::NamesToTry(next->endpoint().address(), next->endpoint().port()));
}

void Connector::TryTcp(const Results& found, Results::iterator next) {
  auto self = shared_from_this();
  error_code error;
  socket_.close(error);
  socket_.open(next->endpoint().protocol(), error);
  if (error) {
    const Status why = IsTooManyFiles(error.value())
                           ? Status(Code::kResourceExhausted,
                                    "can't connect to " + wire::ToString(to_) + ": " + TooManyFiles())
                           : Status(Code::kUnavailable, error.message());
    const auto fail = [self, why] { self->Finish(why); };
    return asio::post(socket_.get_executor(), loop_.InTurn(fail));
  }
  TuneOutgoing(socket_.native_handle());
  auto on_connect = [self, found, next](error_code failed) mutable {
    if (!self->done_) return;
    error_code ignored;
    // A port from the range of outgoing ports where nobody listens can connect to itself.
    if (!failed && self->socket_.local_endpoint(ignored) == self->socket_.remote_endpoint(ignored)) {
      failed = asio::error::connection_refused;
    }
    if (!failed) {
      const int fd = self->socket_.release(failed);
      if (!failed) return self->Finish(DetachedPipe(fd, nullptr));
    }
    if (++next != found.end()) return self->Try(found, next);
    self->Finish(Status(Code::kUnavailable, wire::ToString(self->to_) + ": " + failed.message()));
  };
  socket_.async_connect(next->endpoint(), loop_.InTurn(std::move(on_connect)));
}

void Connector::Finish(Result<DetachedPipe> result) {
  if (!done_) return;
  const Done done = std::exchange(done_, nullptr);
  Cancel();
  done(std::move(result));
}

void Connector::Cancel() {
  done_ = nullptr;
  timer_.cancel();
  resolver_.cancel();
  if (handshake_) std::exchange(handshake_, nullptr)->Cancel();
  error_code ignored;
  if (socket_.is_open()) socket_.close(ignored);
}

}  // namespace cairn::transport
