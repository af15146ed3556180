// Limits of TCP on loopback, with plain blocking sockets: one connection, two threads.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <limits>
#include <thread>
#include <vector>

#include "limits/limits.h"
#include "limits/repeat.h"

namespace bench {
namespace {

constexpr size_t kPiece = 64 * 1024;
constexpr int kSocketBuffer = 512 * 1024;
constexpr size_t kBytesPerTurn = size_t{256} << 20;
constexpr size_t kMessage = 64;
constexpr int kRoundTrips = 2000;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

struct Socket {
  int fd = -1;
  ~Socket() {
    if (fd >= 0) close(fd);
  }
};

void Tune(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSocketBuffer, sizeof(kSocketBuffer));
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kSocketBuffer, sizeof(kSocketBuffer));
}

// Two ends of one connection over 127.0.0.1.
bool Connect(Socket& a, Socket& b) {
  Socket listener{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof(address);
  if (listener.fd < 0) return false;
  Tune(listener.fd);  // before listen: the accepted socket inherits the buffers
  if (bind(listener.fd, any, length) != 0 || listen(listener.fd, 1) != 0) return false;
  if (getsockname(listener.fd, any, &length) != 0) return false;
  a.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (a.fd < 0) return false;
  Tune(a.fd);
  if (connect(a.fd, any, length) != 0) return false;
  b.fd = accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC);
  if (b.fd < 0) return false;
  Tune(b.fd);
  return true;
}

bool WriteAll(int fd, const char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = send(fd, data, bytes, MSG_NOSIGNAL);
    if (n <= 0) return false;
    data += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}
bool ReadAll(int fd, char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = recv(fd, data, bytes, 0);
    if (n <= 0) return false;
    data += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

double LoopbackGbPerSecond() {
  Socket a, b;
  if (!Connect(a, b)) return kNone;
  constexpr int kTimes = 3;
  std::thread writer([&a] {
    std::vector<char> piece(kPiece, 1);
    for (size_t sent = 0; sent < (kTimes + 1) * kBytesPerTurn; sent += kPiece) {
      if (!WriteAll(a.fd, piece.data(), kPiece)) break;
    }
    shutdown(a.fd, SHUT_WR);
  });
  std::vector<char> buffer(kPiece);
  bool ok = true;
  const double seconds = MedianSeconds(kTimes, [&] {
    for (size_t got = 0; ok && got < kBytesPerTurn; got += kPiece) ok = ReadAll(b.fd, buffer.data(), kPiece);
  });
  shutdown(b.fd, SHUT_RDWR);
  writer.join();
  return ok ? kBytesPerTurn / seconds * 1e-9 : kNone;
}

double LoopbackRoundTripUs() {
  Socket a, b;
  if (!Connect(a, b)) return kNone;
  std::thread echo([&b] {
    char message[kMessage];
    while (ReadAll(b.fd, message, kMessage) && WriteAll(b.fd, message, kMessage)) {
    }
  });
  char message[kMessage] = {};
  bool ok = true;
  const double seconds = MedianSeconds(5, [&] {
    for (int i = 0; ok && i < kRoundTrips; ++i) {
      ok = WriteAll(a.fd, message, kMessage) && ReadAll(a.fd, message, kMessage);
    }
  });
  shutdown(a.fd, SHUT_RDWR);
  echo.join();
  return ok ? seconds / kRoundTrips * 1e6 : kNone;
}

}  // namespace bench
