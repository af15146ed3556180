// Ports that are taken, and ports that only look as if they were.

#include <gtest/gtest.h>

#include <string>

#include "contract/peers.h"
#include "transport/tcp/sockets.h"

namespace cairn::transport {
namespace {

// The port of this process's connection to an endpoint of its own; 0: there is none.
uint16_t PortTowards(const wire::Endpoint& to) {
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_in here{}, there{};
    socklen_t length = sizeof(here);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&there), &length) != 0 ||
        there.sin_port != htons(to.port))
      continue;
    length = sizeof(here);
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&here), &length) == 0) return ntohs(here.sin_port);
  }
  return 0;
}

TEST(TcpPorts, ATakenPortSaysWhatToDo) {
  Host host(EchoAll());
  Loop loop("other");
  BufferPool pool;
  const uint16_t port = host.endpoint().port;
  const auto second = Listener::Open(loop, pool, {.host = "127.0.0.1", .port = port, .log = Silent()});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status(),
            Status(Code::kUnavailable, "port " + std::to_string(port) +
                                           " on 127.0.0.1 is taken: choose another with --port, "
                                           "or 0 for any free one"));
  const auto foreign = Listener::Open(loop, pool, {.host = "203.0.113.1", .log = Silent()});
  ASSERT_FALSE(foreign.ok());
  EXPECT_NE(foreign.status().message().find("203.0.113.1 is no address of this machine"), std::string::npos)
      << foreign.status().ToString();
}

// A connection's port comes from a range in which servers' ports lie too, and may be that of a server that
// starts later.
TEST(TcpPorts, AServerMayListenAtThePortOfAConnection) {
  Host host(EchoAll(), {.pipe = PipeChoice{.kind = PipeKind::kTcp}},
            {.pipe = PipeChoice{.kind = PipeKind::kTcp}});
  Caller caller({.pipe = PipeChoice{.kind = PipeKind::kTcp}});
  const ConnId conn = caller.Connect(host.endpoint());
  const uint16_t port = PortTowards(host.endpoint());
  ASSERT_NE(port, 0);
  Loop loop{"another"};
  BufferPool pool;
  auto another =
      Listener::Open(loop, pool, {.port = port, .pipe = PipeChoice{.kind = PipeKind::kTcp}, .log = Silent()});
  EXPECT_TRUE(another.ok()) << another.status().message();
  caller.Send(conn, EmptyFrame(1, caller.pool));
  EXPECT_EQ(caller.messages.Take().header.request_id, 1u);
}

}  // namespace
}  // namespace cairn::transport
