#include "transport/tcp/sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace cairn::transport {
namespace {
// A peer whose machine has vanished is noticed after about kKeepIdle + 3 × kKeepInterval seconds.
constexpr int kKeepIdleSeconds = 60;
constexpr int kKeepIntervalSeconds = 10;
constexpr int kKeepCount = 3;

void Set(int fd, int level, int option, int value) {
  (void)setsockopt(fd, level, option, &value, sizeof(value));
}
}  // namespace

void TuneSocket(int fd) {
  Set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  Set(fd, SOL_SOCKET, SO_SNDBUF, kSocketBufferBytes);
  Set(fd, SOL_SOCKET, SO_RCVBUF, kSocketBufferBytes);
  Set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  Set(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleSeconds);
  Set(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalSeconds);
  Set(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepCount);
  // Where the host's default is bbr, loopback is paced and several times slower.
  constexpr char kCubic[] = "cubic";
  (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kCubic, sizeof(kCubic) - 1);
}

void TuneOutgoing(int fd) {
  TuneSocket(fd);
  Set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
}

void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

uint64_t FileLimit() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 1024;
}

bool IsTooManyFiles(int error) { return error == EMFILE || error == ENFILE; }

std::string TooManyFiles() {
  return "too many open files: this process may have " + std::to_string(FileLimit()) +
         " (ulimit -n), and each connection is one: raise the limit where the process is started (ulimit -n, "
         "LimitNOFILE=), or use fewer processes or threads";
}

std::string UnknownHost(const std::string& host, const std::string& why) {
  return "unknown host " + host + " (" + why +
         "): is the name right, and does this machine's DNS or /etc/hosts have it?";
}

Result<std::string> LocalAddressTowards(const wire::Endpoint& to) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(to.host.c_str(), std::to_string(to.port).c_str(), &hints, &list);
  if (error != 0) return Status(Code::kNotFound, UnknownHost(to.host, gai_strerror(error)));
  std::string found, why = "no address";
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
    // Connecting a datagram socket sends nothing; it only looks up the route.
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0) continue;
    sockaddr_storage local{};
    socklen_t length = sizeof(local);
    char text[INET6_ADDRSTRLEN];
    const bool routed = connect(fd, a->ai_addr, a->ai_addrlen) == 0;
    if (!routed) why = std::strerror(errno);
    const bool ok = routed && getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) == 0 &&
                    getnameinfo(reinterpret_cast<sockaddr*>(&local), length, text, sizeof(text), nullptr, 0,
                                NI_NUMERICHOST) == 0;
    close(fd);
    if (ok) {
      found = text;
      break;
    }
  }
  freeaddrinfo(list);
  if (!found.empty()) return found;
  return Status(Code::kUnavailable, "no network of this machine leads to " + wire::ToString(to) + ": " + why);
}

Result<std::string> AddressOf(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &list); error != 0)
    return Status(Code::kNotFound, UnknownHost(host, gai_strerror(error)));
  char text[NI_MAXHOST] = "";
  const int error =
      getnameinfo(list->ai_addr, list->ai_addrlen, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  freeaddrinfo(list);
  if (error != 0) return Status(Code::kNotFound, UnknownHost(host, gai_strerror(error)));
  return std::string(text);
}

bool IsWildcard(const std::string& host) { return host.empty() || host == "0.0.0.0" || host == "::"; }

std::string LoopbackHost() {
  const auto can_bind = [](const auto& address, int family) {
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    const bool bound = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    close(fd);
    return bound;
  };
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_addr = IN6ADDR_LOOPBACK_INIT;
  // Where there is neither, an error will name the first.
  return !can_bind(four, AF_INET) && can_bind(six, AF_INET6) ? "::1" : "127.0.0.1";
}

namespace {
// An IPv4 address, also where a socket for both kinds shows it as ::ffff:a.b.c.d. 0: it is none.
uint32_t FourOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr);
  const in6_addr& six = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  if (address.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&six)) return 0;
  uint32_t four;
  std::memcpy(&four, six.s6_addr + 12, sizeof(four));
  return ntohl(four);
}
}  // namespace

bool EndsOnSameHost(int fd) {
  sockaddr_storage here{}, there{};
  socklen_t length = sizeof(here);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&here), &length) != 0) return false;
  length = sizeof(there);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&there), &length) != 0) return false;
  if (here.ss_family != there.ss_family) return false;
  if (here.ss_family == AF_UNIX) return true;
  const uint32_t a = FourOf(here), b = FourOf(there);
  constexpr uint32_t kLoopback = 127;
  if (a != 0 || b != 0) return a == b || (a >> 24 == kLoopback && b >> 24 == kLoopback);
  return here.ss_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6&>(here).sin6_addr,
                     &reinterpret_cast<const sockaddr_in6&>(there).sin6_addr, sizeof(in6_addr)) == 0;
}

}  // namespace cairn::transport
