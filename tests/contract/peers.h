// The two ends of a transport for the contract tests: `Host` listens and answers on a loop of its
// own, `Caller` connects, `RawPeer` is a plain socket, or shared memory by hand, that may send anything.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/random.h"
#include "contract/shm_peer.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/loop.h"
#include "transport/tcp/tcp_network.h"
#include "wire/control.h"
#include "wire/data.h"
#include "wire/frame.h"

namespace cairn::transport {

inline LogLine Silent() {
  return [](const std::string&) {};
}

// A push frame with `bytes` pseudo-random bytes of values.
inline wire::FramePtr ValuesFrame(uint64_t request_id, size_t bytes, BufferPool& pool) {
  wire::PushParams params;
  wire::DataParts parts;
  parts.type = wire::FrameType::kPush;
  parts.request_id = request_id;
  parts.params = &params;
  parts.owned = pool.Get(bytes);
  Random random(request_id);
  for (size_t i = 0; i < bytes; ++i) {
    parts.owned.data()[i] = static_cast<std::byte>(i % 8 == 0 ? random.Next() : i);
  }
  if (bytes > 0) parts.values.emplace_back(parts.owned.bytes());
  return wire::EncodeData(std::move(parts), pool);
}

// A frame without a body.
inline wire::FramePtr EmptyFrame(uint64_t request_id, BufferPool& pool) {
  auto frame = std::make_shared<wire::Frame>();
  frame->head = pool.Get(sizeof(wire::FrameHeader));
  frame->header() = wire::FrameHeader{};
  frame->header().request_id = request_id;
  wire::Seal(*frame);
  return frame;
}

// The same frame with its body from `frame`, to send it back.
inline wire::FramePtr Echo(wire::InFrame& frame, BufferPool& pool) {
  auto back = std::make_shared<wire::Frame>();
  back->head = pool.Get(sizeof(wire::FrameHeader));
  std::memcpy(back->head.data(), &frame.header, sizeof(frame.header));
  back->owned = std::move(frame.storage);
  if (!back->owned.empty()) back->values.emplace_back(back->owned.bytes());
  return back;
}

// What a test waits for: events of other threads, one after the other.
template <class T>
class Inbox {
 public:
  void Put(T item) {
    MutexLock lock(mutex_);
    items_.push_back(std::move(item));
    changed_.WakeAll();
  }
  T Take() {
    MutexLock lock(mutex_);
    while (items_.empty()) changed_.Wait(mutex_);
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }
  bool empty() {
    MutexLock lock(mutex_);
    return items_.empty();
  }

 private:
  Mutex mutex_;
  Condition changed_;
  std::deque<T> items_ CAIRN_GUARDED_BY(mutex_);
};

// Runs `fn` on the loop and waits for it.
template <class F>
auto OnLoop(Loop& loop, F fn) {
  std::packaged_task<decltype(fn())()> task(std::move(fn));
  auto result = task.get_future();
  loop.Post([&task] { task(); });
  return result.get();
}

// Listens on one loop and serves its connections on another, as a server does.
class Host {
 public:
  using OnMessage = std::function<void(Host&, ConnId, wire::InFrame&)>;

  explicit Host(OnMessage on_message, ListenerOptions listening = {}, TcpNetworkOptions options = {})
      : on_message_(std::move(on_message)) {
    listening.log = Silent();
    options.log = Silent();
    network = std::make_unique<TcpNetwork>(
        serving, pool,
        TcpNetwork::Events{[](ConnId) {}, [this](ConnId c, wire::InFrame& f) { on_message_(*this, c, f); },
                           [this](ConnId c) { gone.Put(c); }},
        options);
    listener = Listener::Open(accepting, pool, listening).value();
    listener->Start([this](AcceptedConnection accepted) {
      auto held = std::make_shared<AcceptedConnection>(std::move(accepted));
      serving.Post([this, held] { network->Adopt(std::move(*held)); });
    });
    accepting.Start();
    serving.Start();
  }
  ~Host() {
    accepting.Stop();
    serving.Stop();
  }
  wire::Endpoint endpoint() const { return listener->endpoint(); }

  BufferPool pool;
  Loop accepting{"accepting"}, serving{"serving"};
  std::unique_ptr<TcpNetwork> network;
  std::unique_ptr<Listener> listener;
  Inbox<ConnId> gone;

 private:
  OnMessage on_message_;
};

inline Host::OnMessage EchoAll() {
  return
      [](Host& host, ConnId conn, wire::InFrame& frame) { host.network->Send(conn, Echo(frame, host.pool)); };
}

class Caller {
 public:
  explicit Caller(TcpNetworkOptions options = {}) {
    options.log = Silent();
    network = std::make_unique<TcpNetwork>(
        loop, pool,
        TcpNetwork::Events{[this](ConnId c) { connected.Put(c); },
                           [this](ConnId, wire::InFrame& f) { messages.Put(std::move(f)); },
                           [this](ConnId c) { gone.Put(c); }},
        options);
    loop.Start();
  }
  ~Caller() { loop.Stop(); }

  ConnId Connect(const wire::Endpoint& to) {
    const ConnId conn = Begin(to);
    EXPECT_EQ(connected.Take(), conn);
    return conn;
  }
  ConnId Begin(const wire::Endpoint& to) {
    return OnLoop(loop, [&] { return network->Connect(to); });
  }
  void Send(ConnId conn, wire::FramePtr frame) {
    loop.Post([this, conn, frame] { network->Send(conn, frame); });
  }

  BufferPool pool;
  Loop loop{"caller"};
  std::unique_ptr<TcpNetwork> network;
  Inbox<ConnId> connected, gone;
  Inbox<wire::InFrame> messages;
};

class RawPeer {
 public:
  explicit RawPeer(const wire::Endpoint& to, PipeKind kind = PipeKind::kTcp) {
    if (kind == PipeKind::kShm) {
      shm_ = std::make_unique<ShmPeer>(to);
      EXPECT_TRUE(shm_->connected());
      return;
    }
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(to.port);
    inet_pton(AF_INET, to.host.c_str(), &address.sin_addr);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  RawPeer(RawPeer&& other) noexcept : fd_(std::exchange(other.fd_, -1)), shm_(std::move(other.shm_)) {}
  ~RawPeer() { Close(); }

  void Send(std::span<const std::byte> bytes) {
    if (shm_) return shm_->Send(bytes);
    while (!bytes.empty()) {
      const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;  // the other side may close at any moment
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
  }
  void Send(const std::string& text) { Send(std::as_bytes(std::span(text))); }
  void Send(const wire::Frame& frame, BufferPool& pool) { Send(wire::Flatten(frame, pool).bytes()); }
  // Nothing more comes from here; the other side's answers still do.
  void EndSending() { shm_ ? shm_->EndSending() : void(shutdown(fd_, SHUT_WR)); }

  // Everything until the other side closes.
  std::vector<std::byte> ReadToEnd() { return Read(~size_t{0}); }
  // `bytes`, or fewer where the other side closes before.
  std::vector<std::byte> Read(size_t bytes) {
    if (shm_) return shm_->Read(bytes);
    std::vector<std::byte> all;
    std::byte piece[65536];
    while (all.size() < bytes) {
      const ssize_t n = recv(fd_, piece, std::min(sizeof(piece), bytes - all.size()), 0);
      if (n <= 0) break;
      all.insert(all.end(), piece, piece + n);
    }
    return all;
  }
  // Closes so that the other side gets a reset.
  void Reset() {
    if (shm_) return Close();
    const linger now{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    Close();
  }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
    if (shm_) shm_->Close();
  }

 private:
  int fd_ = -1;
  std::unique_ptr<ShmPeer> shm_;
};

}  // namespace cairn::transport
