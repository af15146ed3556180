// The connecting side of shared memory: tries the names under which the listener of an address
// could be found, and exchanges memories with it. Internal to the transport. On the loop's thread.
#pragma once

#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cairn/status.h"
#include "transport/shm/choice.h"
#include "transport/shm/memory.h"
#include "transport/tcp/detached_pipe.h"
#include "transport/tcp/loop.h"

namespace cairn::transport::shm {

// Each side gives the other so long for its message. A listener that has not answered by then is
// asked over TCP.
inline constexpr int64_t kHandshakeMs = 1'000;

class Handshake : public std::enable_shared_from_this<Handshake> {
 public:
  using Done = std::function<void(Result<DetachedPipe>)>;
  Handshake(Loop& loop, const PipeChoice& choice, Done done);
  // Tells `done`, once, unless Cancel comes first; also from inside this call. An error says why
  // memory is not shared with whoever listens by one of these names: kDeadlineExceeded if it is there and
  // has not answered in time.
  void Start(const std::vector<std::string>& names);
  void Cancel();

 private:
  Status ConnectTo(const std::string& name);
  void OnAnswer();
  void Finish(Result<DetachedPipe> result);

  Loop& loop_;
  const PipeChoice choice_;
  Done done_;  // empty: over
  boost::asio::local::stream_protocol::socket socket_;
  boost::asio::steady_timer timer_;
  std::optional<Memory> own_;
};

}  // namespace cairn::transport::shm
