// Accepts connections, by TCP and from this host through shared memory, and reads the first frame of
// each, which says what the peer wants. Then the connection is handed to a router, and from it to
// whatever loop is to have it. Until then a peer costs little: a small limit on its frame, a
// deadline, and a bound on how many may wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/buffer.h"
#include "base/log.h"
#include "cairn/status.h"
#include "transport/shm/choice.h"
#include "transport/tcp/detached_pipe.h"
#include "transport/tcp/loop.h"
#include "wire/cluster_state.h"
#include "wire/frame.h"

namespace cairn::transport {

// A connection between two loops: its pipe, the first frame, and what was read beyond it.
// Move-only; closes the connection if nobody took it.
class AcceptedConnection {
 public:
  AcceptedConnection(DetachedPipe pipe, wire::InFrame first, Buffer rest, std::string peer);
  AcceptedConnection(AcceptedConnection&& other) noexcept = default;
  AcceptedConnection& operator=(AcceptedConnection&&) = delete;

  const wire::InFrame& first() const { return first_; }
  const std::string& peer() const { return peer_; }  // "host:port", or which process

 private:
  friend class TcpNetwork;
  DetachedPipe pipe_;
  wire::InFrame first_;
  Buffer rest_;
  std::string peer_;
};

struct ListenerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;                    // 0: any free one
  int64_t handshake_ms = 10'000;        // for the first frame
  size_t max_waiting = 1024;            // connections without a first frame; beyond it the oldest is closed
  std::optional<PipeChoice> pipe = {};  // not set: as the environment says
  LogLine log;                          // required
};

class Listener {
 public:
  using Router = std::function<void(AcceptedConnection)>;  // called on the loop

  // Binds and listens; nothing is accepted before Start. A port that can't be had is kUnavailable
  // and says what to do.
  // Shared memory that can't be offered is said in a line of the log; with kShm it is an error.
  static Result<std::unique_ptr<Listener>> Open(Loop& loop, BufferPool& pool, ListenerOptions options);
  // On the loop's thread, or when its thread has ended.
  virtual ~Listener() = default;
  // On the loop's thread, or before the loop is started.
  virtual void Start(Router router) = 0;
  // Accepts no more, and closes what still waits for its first frame. On the loop's thread.
  virtual void Close() = 0;
  virtual wire::Endpoint endpoint() const = 0;  // with the real port
  virtual size_t waiting() const = 0;
};

}  // namespace cairn::transport
