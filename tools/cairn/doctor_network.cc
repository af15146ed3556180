// cairn doctor: loopback, and the ports that jobs over several machines use.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>

#include "doctor.h"
#include "meeting_place.h"
#include "transport/tcp/sockets.h"

namespace cairn::tool {
namespace {

constexpr int kAcceptMs = 2'000;

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

struct Address {
  explicit Address(const std::string& host, uint16_t port = 0) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(storage);
    auto& v6 = reinterpret_cast<sockaddr_in6&>(storage);
    if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
      v4.sin_family = AF_INET;
      v4.sin_port = htons(port);
      size = sizeof v4;
    } else if (inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
      v6.sin6_family = AF_INET6;
      v6.sin6_port = htons(port);
      size = sizeof v6;
    }
  }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int NewSocket() const { return socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0); }
  sockaddr_storage storage{};
  socklen_t size = 0;
};

bool Listen(const Socket& socket, Address& address) {
  const int yes = 1;
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  return bind(socket.fd(), address.get(), address.size) == 0 && listen(socket.fd(), 1) == 0 &&
         getsockname(socket.fd(), address.get(), &address.size) == 0;
}

Finding Loopback() {
  const std::string advice = "is `lo` up (ip link set lo up), and does no firewall or sandbox forbid it?";
  const std::string host = transport::LoopbackHost();
  Address address(host);
  const Socket listener(address.NewSocket()), client(address.NewSocket());
  if (!Listen(listener, address))
    return {Health::kFail, "loopback", "can't listen on " + host + ": " + strerror(errno), advice};
  if (connect(client.fd(), address.get(), address.size) != 0)
    return {Health::kFail, "loopback", "can't connect to " + host + ": " + strerror(errno), advice};
  pollfd wait{listener.fd(), POLLIN, 0};
  char byte = 'x', got = 0;
  if (poll(&wait, 1, kAcceptMs) != 1)
    return {Health::kFail, "loopback", "a connection to " + host + " does not arrive", advice};
  const Socket accepted(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  wait = {accepted.fd(), POLLIN, 0};
  if (send(client.fd(), &byte, 1, MSG_NOSIGNAL) != 1 || poll(&wait, 1, kAcceptMs) != 1 ||
      recv(accepted.fd(), &got, 1, 0) != 1 || got != byte)
    return {Health::kFail, "loopback", "a byte sent over " + host + " does not arrive", advice};
  const bool only_v6 = host == "::1";
  return {Health::kOk, "loopback", std::string("listens and connects") + (only_v6 ? ", by IPv6 alone" : ""),
          ""};
}

Finding Ports() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  int low = 0, high = 0;
  file >> low >> high;
  std::string text = "free ports are taken from " + std::to_string(low) + " to " + std::to_string(high);
  std::string taken;
  for (uint16_t port : {kDefaultMasterPort, static_cast<uint16_t>(kDefaultMasterPort + 1)}) {
    Address address("0.0.0.0", port);
    const Socket socket(address.NewSocket());
    if (!Listen(socket, address)) taken += (taken.empty() ? "" : " and ") + std::to_string(port);
  }
  if (taken.empty()) {
    text += "; " + std::to_string(kDefaultMasterPort) + " and the next, for several machines, are free";
    return {high - low >= 1000 ? Health::kOk : Health::kWarn, "ports", text,
            high - low >= 1000 ? "" : "widen net.ipv4.ip_local_port_range"};
  }
  return {Health::kWarn, "ports", text + "; taken: " + taken,
          "with --nnodes give another --master-port (two in a row are used)"};
}

}  // namespace

std::vector<Finding> CheckNetwork() { return {Loopback(), Ports()}; }

}  // namespace cairn::tool
