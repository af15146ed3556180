// Resolves a host and connects to it, within a time limit: through shared memory where the host is
// this one and its listener offers it, else by TCP. Internal to the transport. On the loop's thread.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>

#include "cairn/status.h"
#include "transport/shm/choice.h"
#include "transport/shm/handshake.h"
#include "transport/tcp/detached_pipe.h"
#include "transport/tcp/loop.h"
#include "wire/cluster_state.h"

namespace cairn::transport {

class Connector : public std::enable_shared_from_this<Connector> {
 public:
  using Done = std::function<void(Result<DetachedPipe>)>;
  // `done` is called once, later (never from inside Start), unless Cancel comes first. kNotFound: the
  // host's name is unknown.
  static std::shared_ptr<Connector> Start(Loop& loop, const wire::Endpoint& to, const PipeChoice& choice,
                                          int64_t timeout_us, Done done);
  void Cancel();
  // It has tried TCP since a listener that offers shared memory did not answer in time.
  bool fell_back() const { return fell_back_; }
  Connector(Loop& loop, wire::Endpoint to, const PipeChoice& choice, Done done);

 private:
  using Results = boost::asio::ip::tcp::resolver::results_type;
  void Resolve(int64_t timeout_us);
  void Try(const Results& found, Results::iterator next);
  void TryTcp(const Results& found, Results::iterator next);
  void Finish(Result<DetachedPipe> result);

  Loop& loop_;
  const wire::Endpoint to_;
  const PipeChoice choice_;
  Done done_;  // empty: over
  boost::asio::ip::tcp::resolver resolver_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
  std::shared_ptr<shm::Handshake> handshake_;
  bool fell_back_ = false;
};

}  // namespace cairn::transport
