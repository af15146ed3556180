// How two processes on one host come to share memory: the names of the Unix sockets, who may, and
// the one message that each side sends (docs/internals/wire-format.md, "Shared memory"). Plain system calls
// that do not block.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cairn/status.h"
#include "transport/shm/memory.h"

namespace cairn::transport::shm {

struct SetupMessage {
  char magic[4] = {'C', 'S', 'H', 'M'};
  uint32_t version = 1;
  uint64_t ring_bytes = 0;
  uint64_t reserved[6] = {};
};
static_assert(sizeof(SetupMessage) == 64);

// The abstract name, its zero byte included, of whoever listens on this address and port.
// `v6_only`: a wildcard that takes no IPv4.
std::string NameOfListener(const boost::asio::ip::address& bound, uint16_t port, bool v6_only);
// Where a connector to this address looks, in this order; nothing if it is no address of this host.
std::vector<std::string> NamesToTry(const boost::asio::ip::address& to, uint16_t port);

// Who is at the other end of a Unix socket.
struct PeerProcess {
  int64_t pid = 0;
  uint32_t uid = 0;
};
std::optional<PeerProcess> PeerOf(int fd);
// Whether its user is ours.
bool IsOurUser(const PeerProcess& peer);

// Passes `own` on. The message fits into every socket's buffer; what does not go at once is an
// error.
Status SendSetup(int fd, const Memory& own);
// The peer's message and memory. Call it when the socket is readable.
Result<Memory> ReceiveSetup(int fd);

}  // namespace cairn::transport::shm
