// The listening side of shared memory: accepts on the Unix socket that goes with a TCP address,
// looks who it is, exchanges memories, and hands the finished pipe on. Internal to the transport.
// On the loop's thread.
#pragma once

#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "cairn/status.h"
#include "transport/shm/choice.h"
#include "transport/tcp/detached_pipe.h"
#include "transport/tcp/loop.h"

namespace cairn::transport::shm {

struct AcceptorOptions {
  std::string name;  // NameOfListener
  PipeChoice choice;
  size_t max_waiting = 0;  // beyond it the oldest is closed
};

class Acceptor {
 public:
  using Ready = std::function<void(DetachedPipe)>;
  using Say = std::function<void(const std::string&)>;

  // Binds and listens; nothing is accepted before Start.
  static Result<std::unique_ptr<Acceptor>> Open(Loop& loop, AcceptorOptions options);
  Acceptor(Loop& loop, AcceptorOptions options, boost::asio::local::stream_protocol::acceptor acceptor);
  ~Acceptor();
  // `say` is told of peers that misbehave.
  void Start(Ready ready, Say say);
  void Close();

 private:
  // One that has connected and not yet sent its memory.
  struct Waiting {
    explicit Waiting(boost::asio::local::stream_protocol::socket s);
    boost::asio::local::stream_protocol::socket socket;
    boost::asio::steady_timer timer;
  };

  void Accept();
  void Retry();
  void Add(boost::asio::local::stream_protocol::socket socket);
  void OnSetup(const std::shared_ptr<Waiting>& one);
  void Forget(const std::shared_ptr<Waiting>& one);

  Loop& loop_;
  const AcceptorOptions options_;
  boost::asio::local::stream_protocol::acceptor acceptor_;
  boost::asio::steady_timer retry_;
  std::list<std::shared_ptr<Waiting>> waiting_;  // oldest first
  Ready ready_;
  Say say_;
  // Handlers may run after this object has gone; they look here first.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cairn::transport::shm
