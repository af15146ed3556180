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

namespace cairn::tool {
namespace {

constexpr int kAcceptMs = 2'000;

class Socket {
 public:
  Socket() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
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

sockaddr_in At(in_addr_t host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(host);
  address.sin_port = htons(port);
  return address;
}

bool Listen(const Socket& socket, sockaddr_in& address) {
  const int yes = 1;
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  socklen_t size = sizeof address;
  return bind(socket.fd(), reinterpret_cast<sockaddr*>(&address), size) == 0 && listen(socket.fd(), 1) == 0 &&
         getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size) == 0;
}

Finding Loopback() {
  const std::string advice = "is `lo` up (ip link set lo up), and does no firewall or sandbox forbid it?";
  Socket listener, client;
  sockaddr_in address = At(INADDR_LOOPBACK, 0);
  if (!Listen(listener, address))
    return {Health::kFail, "loopback", std::string("can't listen on 127.0.0.1: ") + strerror(errno), advice};
  if (connect(client.fd(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    return {Health::kFail, "loopback", std::string("can't connect to 127.0.0.1: ") + strerror(errno), advice};
  pollfd wait{listener.fd(), POLLIN, 0};
  char byte = 'x', got = 0;
  if (poll(&wait, 1, kAcceptMs) != 1)
    return {Health::kFail, "loopback", "a connection to 127.0.0.1 does not arrive", advice};
  const Socket accepted(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  wait = {accepted.fd(), POLLIN, 0};
  if (send(client.fd(), &byte, 1, MSG_NOSIGNAL) != 1 || poll(&wait, 1, kAcceptMs) != 1 ||
      recv(accepted.fd(), &got, 1, 0) != 1 || got != byte)
    return {Health::kFail, "loopback", "a byte sent over 127.0.0.1 does not arrive", advice};
  return {Health::kOk, "loopback", "listens and connects", ""};
}

Finding Ports() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  int low = 0, high = 0;
  file >> low >> high;
  std::string text = "free ports are taken from " + std::to_string(low) + " to " + std::to_string(high);
  std::string taken;
  for (uint16_t port : {kDefaultMasterPort, static_cast<uint16_t>(kDefaultMasterPort + 1)}) {
    Socket socket;
    sockaddr_in address = At(INADDR_ANY, port);
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
