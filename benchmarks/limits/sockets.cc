// Limits of sockets: TCP on loopback and Unix streams, one connection, two threads.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <limits>
#include <thread>
#include <vector>

#include "limits/limits.h"
#include "limits/repeat.h"
#include "optimizer/span_ops.h"

namespace bench {
namespace {

constexpr size_t kBytesPerTurn = size_t{64} << 20;
constexpr int kTimes = 3;
constexpr size_t kMessage = 64;
constexpr size_t kSmallPush = 4096;
constexpr int kRoundTrips = 2000;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// How a stream is written: bytes of a send and of a receive, and of the socket's buffers (0: as the
// system sets and grows them).
struct StreamSetting {
  size_t piece;
  int socket_buffer;
};
constexpr size_t kPieces[] = {size_t{64} << 10, size_t{128} << 10, size_t{256} << 10, size_t{1} << 20};
constexpr int kSocketBuffers[] = {0, 512 << 10, 4 << 20};

struct Socket {
  int fd = -1;
  ~Socket() {
    if (fd >= 0) close(fd);
  }
};

void Tune(int fd, int buffer) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // refused by a Unix socket, which needs none
  if (buffer == 0) return;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
}

// Two ends of one connection over 127.0.0.1.
bool ConnectTcp(Socket& a, Socket& b, int buffer) {
  Socket listener{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof(address);
  if (listener.fd < 0) return false;
  Tune(listener.fd, buffer);  // before listen: the accepted socket inherits the buffers
  if (bind(listener.fd, any, length) != 0 || listen(listener.fd, 1) != 0) return false;
  if (getsockname(listener.fd, any, &length) != 0) return false;
  a.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (a.fd < 0) return false;
  Tune(a.fd, buffer);
  if (connect(a.fd, any, length) != 0) return false;
  b.fd = accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC);
  if (b.fd < 0) return false;
  Tune(b.fd, buffer);
  return true;
}
bool ConnectUnix(Socket& a, Socket& b, int buffer) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  a.fd = ends[0];
  b.fd = ends[1];
  Tune(a.fd, buffer);
  Tune(b.fd, buffer);
  return true;
}
using ConnectFunction = bool (*)(Socket&, Socket&, int buffer);

// `flags` MSG_DONTWAIT: looks again and again instead of blocking.
bool WriteAll(int fd, const char* data, size_t bytes, int flags = 0) {
  while (bytes > 0) {
    const ssize_t n = send(fd, data, bytes, MSG_NOSIGNAL | flags);
    if (n < 0 && errno == EAGAIN) continue;
    if (n <= 0) return false;
    data += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}
bool ReadAll(int fd, char* data, size_t bytes, int flags = 0) {
  while (bytes > 0) {
    const ssize_t n = recv(fd, data, bytes, flags);
    if (n < 0 && errno == EAGAIN) {
      sched_yield();
      continue;
    }
    if (n <= 0) return false;
    data += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

double StreamGbPerSecond(ConnectFunction connect_ends, StreamSetting setting) {
  Socket a, b;
  if (!connect_ends(a, b, setting.socket_buffer)) return kNone;
  std::thread writer([&a, &setting] {
    std::vector<char> piece(setting.piece, 1);
    for (size_t sent = 0; sent < (kTimes + 1) * kBytesPerTurn; sent += piece.size()) {
      if (!WriteAll(a.fd, piece.data(), piece.size())) break;
    }
    shutdown(a.fd, SHUT_WR);
  });
  std::vector<char> buffer(setting.piece);
  bool ok = true;
  const double seconds = MedianSeconds(kTimes, [&] {
    for (size_t got = 0; ok && got < kBytesPerTurn; got += buffer.size())
      ok = ReadAll(b.fd, buffer.data(), buffer.size());
  });
  shutdown(b.fd, SHUT_RDWR);
  writer.join();
  return ok ? kBytesPerTurn / seconds * 1e-9 : kNone;
}

double BestStream(ConnectFunction connect_ends) {
  double best = kNone;
  for (const size_t piece : kPieces)
    for (const int buffer : kSocketBuffers)
      best = std::fmax(best, StreamGbPerSecond(connect_ends, {piece, buffer}));
  return best;
}

// As RingPushGbPerSecond, over TCP.
double PushGbPerSecond(StreamSetting setting) {
  constexpr size_t kArrayBytes = size_t{16} << 20, kPushes = 30;
  Socket a, b;
  if (!ConnectTcp(a, b, setting.socket_buffer)) return kNone;
  std::thread server([&b, &setting] {
    std::vector<float> sums(kArrayBytes / sizeof(float)), piece(setting.piece / sizeof(float));
    const char answer[kMessage] = {};
    for (bool goes_on = true; goes_on;) {
      for (size_t got = 0; goes_on && got < sums.size(); got += piece.size()) {
        goes_on = ReadAll(b.fd, reinterpret_cast<char*>(piece.data()), setting.piece) &&
                  cairn::optimizer::AllFinite(piece);
        for (size_t i = 0; i < piece.size(); ++i) sums[got + i] += piece[i];
      }
      goes_on = goes_on && WriteAll(b.fd, answer, kMessage);
    }
  });
  const std::vector<float> source(kArrayBytes / sizeof(float), 1e-3f);
  char answer[kMessage];
  bool ok = true;
  const double seconds = MedianSeconds(kPushes, [&] {
    ok = ok && cairn::optimizer::AllFinite(source) &&
         WriteAll(a.fd, reinterpret_cast<const char*>(source.data()), kArrayBytes) &&
         ReadAll(a.fd, answer, kMessage);
  });
  shutdown(a.fd, SHUT_RDWR);
  server.join();
  return ok ? kArrayBytes / seconds * 1e-9 : kNone;
}

double PingUs(size_t there, size_t back, int flags) {
  Socket a, b;
  if (!ConnectTcp(a, b, 512 << 10)) return kNone;
  std::thread echo([&] {
    std::vector<char> message(std::max(there, back));
    while (ReadAll(b.fd, message.data(), there, flags) && WriteAll(b.fd, message.data(), back, flags)) {
    }
  });
  std::vector<char> message(std::max(there, back));
  bool ok = true;
  const double seconds = MedianSeconds(5, [&] {
    for (int i = 0; ok && i < kRoundTrips; ++i)
      ok = WriteAll(a.fd, message.data(), there, flags) && ReadAll(a.fd, message.data(), back, flags);
  });
  shutdown(a.fd, SHUT_RDWR);
  echo.join();
  return ok ? seconds / kRoundTrips * 1e6 : kNone;
}

}  // namespace

double LoopbackGbPerSecond() { return BestStream(ConnectTcp); }
double LoopbackPushGbPerSecond() {
  double best = kNone;
  for (const size_t piece : kPieces)
    for (const int buffer : kSocketBuffers) best = std::fmax(best, PushGbPerSecond({piece, buffer}));
  return best;
}
double UnixGbPerSecond() { return BestStream(ConnectUnix); }
double LoopbackRoundTripUs() { return PingUs(kMessage, kMessage, 0); }
double LoopbackPingUs() {
  return std::fmin(PingUs(kSmallPush, kMessage, 0), PingUs(kSmallPush, kMessage, MSG_DONTWAIT));
}

}  // namespace bench
