// A peer that says whatever a test wants it to say: frames built by hand, past the client's own
// checks, over a plain blocking socket with a deadline.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "wire/control.h"
#include "wire/data.h"
#include "wire/frame.h"

namespace cairn::testing {

class RawPeer {
 public:
  explicit RawPeer(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
  }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;
  ~RawPeer() { ::close(fd_); }

  bool connected() const { return connected_; }

  bool SendBytes(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return true;
  }
  bool Send(const wire::FramePtr& frame) { return SendBytes(wire::Flatten(*frame, pool_).bytes()); }
  bool Send(const wire::ControlMessage& message) { return Send(wire::EncodeControl(message, pool_)); }

  // The next frame, or nothing if the peer closed or said nothing for `timeout_ms`.
  std::optional<wire::InFrame> Receive(int timeout_ms = 10'000) {
    wire::InFrame frame;
    if (!ReadAll({reinterpret_cast<std::byte*>(&frame.header), sizeof frame.header}, timeout_ms)) return {};
    if (!wire::CheckHeader(frame.header, wire::kMaxBodyBytes).ok()) return {};
    frame.storage = pool_.Get(frame.header.body_bytes);
    if (!ReadAll(frame.storage.bytes(), timeout_ms)) return {};
    if (!wire::CheckBody(frame.header, frame.body()).ok()) return {};
    return frame;
  }
  // Skips frames until a control message of type T.
  template <class T>
  std::optional<T> Await(int frames = 50) {
    for (int i = 0; i < frames; ++i) {
      auto frame = Receive();
      if (!frame) return {};
      if (frame->header.type != wire::FrameType::kControl) continue;
      auto message = wire::DecodeControl(frame->header, frame->body());
      if (message.ok() && std::holds_alternative<T>(*message)) return std::get<T>(*message);
    }
    return {};
  }
  // True once the peer has closed the connection.
  bool Closed(int timeout_ms = 10'000) {
    std::byte rest[4096];
    while (true) {
      pollfd p{fd_, POLLIN, 0};
      if (::poll(&p, 1, timeout_ms) <= 0) return false;
      if (::recv(fd_, rest, sizeof rest, 0) <= 0) return true;
    }
  }
  BufferPool& pool() { return pool_; }

 private:
  bool ReadAll(std::span<std::byte> into, int timeout_ms) {
    while (!into.empty()) {
      pollfd p{fd_, POLLIN, 0};
      if (::poll(&p, 1, timeout_ms) <= 0) return false;
      const ssize_t n = ::recv(fd_, into.data(), into.size(), 0);
      if (n <= 0) return false;
      into = into.subspan(static_cast<size_t>(n));
    }
    return true;
  }

  BufferPool pool_;
  int fd_;
  bool connected_ = false;
};

}  // namespace cairn::testing
