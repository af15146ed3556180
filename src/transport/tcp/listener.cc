#include "transport/tcp/listener.h"

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <list>
#include <utility>

#include "transport/shm/acceptor.h"
#include "transport/shm/rendezvous.h"
#include "transport/tcp/connection.h"
#include "transport/tcp/sockets.h"

namespace cairn::transport {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

AcceptedConnection::AcceptedConnection(DetachedPipe pipe, wire::InFrame first, Buffer rest, std::string peer)
    : pipe_(std::move(pipe)), first_(std::move(first)), rest_(std::move(rest)), peer_(std::move(peer)) {}

namespace {
constexpr int kBacklog = 4096;
// After an accept that failed (no descriptor left, no memory): the next try.
constexpr int64_t kAcceptRetryMs = 100;
// How often the handshake deadlines are looked at, while somebody waits.
constexpr int64_t kSweepMs = 250;
// Lines about bad peers: at most one in so long, so that nobody can fill the log.
constexpr int64_t kAcceptLogEveryUs = 1'000'000;

class TcpListener final : public Listener, public Connection::Owner {
 public:
  TcpListener(Loop& loop, BufferPool& pool, ListenerOptions options, tcp::acceptor acceptor,
              std::unique_ptr<shm::Acceptor> local, wire::Endpoint endpoint)
      : loop_(loop),
        pool_(pool),
        options_(std::move(options)),
        acceptor_(std::move(acceptor)),
        local_(std::move(local)),
        retry_(loop.context()),
        sweep_(loop.context()),
        endpoint_(std::move(endpoint)) {}
  ~TcpListener() override { Close(); }

  void Start(Router router) override {
    router_ = std::move(router);
    Accept();
    if (!local_) return;
    local_->Start([this](DetachedPipe pipe) { Add(std::move(pipe)); },
                  [this](const std::string& line) { Say(line); });
  }

  void Close() override {
    *alive_ = false;
    error_code ignored;
    acceptor_.close(ignored);
    if (local_) local_->Close();
    retry_.cancel();
    sweep_.cancel();
    for (Waiting& w : waiting_) w.connection->CloseNow();
    waiting_.clear();
  }

  wire::Endpoint endpoint() const override { return endpoint_; }
  size_t waiting() const override { return waiting_.size(); }

  void OnFrame(Connection& connection, wire::InFrame& frame) override {
    Buffer rest;
    DetachedPipe pipe = connection.Release(&rest);
    AcceptedConnection accepted(std::move(pipe), std::move(frame), std::move(rest), connection.peer());
    Forget(connection);
    router_(std::move(accepted));
  }

  void OnClosed(Connection& connection, const Status& why) override {
    if (why.code() == Code::kProtocol || why.code() == Code::kResourceExhausted)
      Say("closed a connection: " + why.message());
    Forget(connection);
  }

 private:
  struct Waiting {
    std::shared_ptr<Connection> connection;
    int64_t until_us = 0;
  };

  void Accept() {
    const auto on_accept = [this, alive = alive_](const error_code& error, tcp::socket socket) {
      if (!*alive) return;
      if (error == asio::error::connection_aborted) return Accept();
      if (error) return Retry(error);
      error_code detached;
      const int fd = socket.release(detached);
      Add(DetachedPipe(fd, nullptr));
      Accept();
    };
    acceptor_.async_accept(loop_.InTurn(on_accept));
  }

  void Retry(const error_code& error) {
    const bool files = IsTooManyFiles(error.value());
    Say("can't accept connections on " + wire::ToString(endpoint_) + ": " +
        (files ? TooManyFiles() : error.message() + ": trying again"));
    // Whoever has not said anything yet makes room.
    if (files && !waiting_.empty()) {
      waiting_.front().connection->CloseNow();
      waiting_.pop_front();
    }
    retry_.expires_after(std::chrono::milliseconds(kAcceptRetryMs));
    retry_.async_wait(loop_.InTurn([this, alive = alive_](const error_code& cancelled) {
      if (*alive && !cancelled) Accept();
    }));
  }

  void Add(DetachedPipe pipe) {
    if (waiting_.size() >= options_.max_waiting) {
      waiting_.front().connection->CloseNow();
      waiting_.pop_front();
    }
    ConnectionOptions limits;
    limits.max_body_bytes = wire::kMaxUnauthenticatedBodyBytes;
    auto connection = Connection::Over(std::move(pipe), loop_, pool_, limits);
    if (!connection) return;
    if (waiting_.empty()) Sweep();
    waiting_.push_back({connection, Loop::NowUs() + options_.handshake_ms * 1000});
    connection->Start(this);
  }

  void Forget(const Connection& connection) {
    waiting_.remove_if([&](const Waiting& w) { return w.connection.get() == &connection; });
  }

  // Closes those that are past their deadline; they stand in its order.
  void Sweep() {
    sweep_.expires_after(std::chrono::milliseconds(kSweepMs));
    const auto sweep = [this, alive = alive_](const error_code& cancelled) {
      if (!*alive || cancelled) return;
      while (!waiting_.empty() && waiting_.front().until_us <= Loop::NowUs()) {
        waiting_.front().connection->CloseNow();
        waiting_.pop_front();
      }
      if (!waiting_.empty()) Sweep();
    };
    sweep_.async_wait(loop_.InTurn(sweep));
  }

  void Say(const std::string& line) {
    const int64_t now_us = Loop::NowUs();
    if (now_us < quiet_until_us_) return;
    quiet_until_us_ = now_us + kAcceptLogEveryUs;
    options_.log(line);
  }

  Loop& loop_;
  BufferPool& pool_;
  const ListenerOptions options_;
  tcp::acceptor acceptor_;
  const std::unique_ptr<shm::Acceptor> local_;  // null: no shared memory
  asio::steady_timer retry_, sweep_;
  const wire::Endpoint endpoint_;
  Router router_;
  std::list<Waiting> waiting_;  // oldest first
  int64_t quiet_until_us_ = 0;
  // Handlers may run after this object has gone; they look here first.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

Status BindError(const ListenerOptions& options, const error_code& error) {
  const std::string where = "port " + std::to_string(options.port) + " on " + options.host;
  if (error == asio::error::address_in_use) {
    return {Code::kUnavailable, where + " is taken: choose another with --port, or 0 for any free one"};
  }
  if (error == asio::error::access_denied) {
    return {Code::kUnavailable, where + " needs privileges: choose one above 1023 with --port"};
  }
  if (error.value() == EADDRNOTAVAIL) {
    return {Code::kUnavailable, options.host + " is no address of this machine: choose one with --host"};
  }
  return {Code::kUnavailable, "can't listen on " + where + ": " + error.message()};
}

Result<tcp::endpoint> Resolve(const ListenerOptions& options, asio::io_context& io) {
  error_code error;
  const auto address = asio::ip::make_address(options.host.empty() ? "0.0.0.0" : options.host, error);
  if (!error) return tcp::endpoint(address, options.port);
  tcp::resolver resolver(io);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    return Status(Code::kUnavailable, "can't listen on host " + options.host + ": " + error.message());
  }
  return found.begin()->endpoint();
}

// The Unix socket that goes with a bound address; null where there is none.
Result<std::unique_ptr<shm::Acceptor>> OpenLocal(Loop& loop, const ListenerOptions& options,
                                                 const tcp::acceptor& acceptor) {
  Result<PipeChoice> choice = options.pipe ? Result<PipeChoice>(*options.pipe) : PipeFromEnvironment();
  if (!choice.ok()) return choice.status();
  if (choice->kind == PipeKind::kTcp) return std::unique_ptr<shm::Acceptor>();
  error_code error;
  const tcp::endpoint at = acceptor.local_endpoint(error);
  asio::ip::v6_only v6_only(false);
  if (at.address().is_v6()) acceptor.get_option(v6_only, error);
  shm::AcceptorOptions local;
  local.name = shm::NameOfListener(at.address(), at.port(), v6_only.value());
  local.choice = *choice;
  local.max_waiting = options.max_waiting;
  auto opened = shm::Acceptor::Open(loop, std::move(local));
  if (opened.ok() || choice->kind == PipeKind::kShm) return opened;
  options.log("no shared memory with processes on this host: " + opened.status().message());
  return std::unique_ptr<shm::Acceptor>();
}
}  // namespace

Result<std::unique_ptr<Listener>> Listener::Open(Loop& loop, BufferPool& pool, ListenerOptions options) {
  // Those who have not said who they are get no more than a quarter of the descriptors.
  options.max_waiting = std::min<size_t>(options.max_waiting, std::max<uint64_t>(FileLimit() / 4, 1));
  Result<tcp::endpoint> at = Resolve(options, loop.context());
  if (!at.ok()) return at.status();
  tcp::acceptor acceptor(loop.context());
  error_code error;
  acceptor.open(at->protocol(), error);
  if (error) return BindError(options, error);
  acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  TuneSocket(acceptor.native_handle());  // inherited; window scaling is fixed before the handshake
  acceptor.bind(*at, error);
  if (!error) acceptor.listen(kBacklog, error);
  if (error) return BindError(options, error);
  auto local = OpenLocal(loop, options, acceptor);
  if (!local.ok()) return local.status();
  wire::Endpoint endpoint{options.host, acceptor.local_endpoint(error).port()};
  return std::unique_ptr<Listener>(new TcpListener(loop, pool, std::move(options), std::move(acceptor),
                                                   std::move(*local), std::move(endpoint)));
}

}  // namespace cairn::transport
