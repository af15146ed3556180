// Stands between workers and a server, at the address that the scheduler tells them: passes everything on,
// and on demand tells lies about the size of answers. One thread, so that a test can count memory.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "wire/frame.h"

namespace cairn::testing {

class LyingServer {
 public:
  LyingServer() {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof address;
    usable_ = ::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
              ::listen(listener_, 16) == 0 &&
              ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0;
    port_ = ntohs(address.sin_port);
  }
  ~LyingServer() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    for (const Pair& pair : pairs_) Close(pair);
    ::close(listener_);
  }
  LyingServer(const LyingServer&) = delete;
  LyingServer& operator=(const LyingServer&) = delete;

  bool usable() const { return usable_; }
  uint16_t port() const { return port_; }
  // Before anybody connects.
  void Start(uint16_t server_port) {
    server_port_ = server_port;
    thread_ = std::thread([this] { Run(); });
  }
  // From now on the header of each answer to a pull claims a body of so many bytes, and nothing follows it;
  // 0: answers are passed on.
  void Claim(uint32_t bytes) { claim_ = bytes; }
  // Claims that were made, and connections that a worker has closed after one.
  uint32_t claims() const { return claims_; }
  uint32_t closed() const { return closed_; }

 private:
  struct Pair {
    int worker = -1, server = -1;
    std::vector<std::byte> answers = {};  // not passed on yet
    bool lied = false;
  };

  static sockaddr_in Loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  static void Close(const Pair& pair) {
    ::close(pair.worker);
    ::close(pair.server);
  }
  static bool SendAll(int to, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return true;
  }

  void Run() {
    while (!stop_) {
      std::vector<pollfd> wanted = {{listener_, POLLIN, 0}};
      for (const Pair& pair : pairs_) {
        wanted.push_back({pair.worker, POLLIN, 0});
        wanted.push_back({pair.server, POLLIN, 0});
      }
      if (::poll(wanted.data(), wanted.size(), 20) <= 0) continue;
      size_t at = 1;
      for (auto it = pairs_.begin(); it != pairs_.end(); at += 2) {
        const bool alive =
            (wanted[at].revents == 0 || FromWorker(*it)) && (wanted[at + 1].revents == 0 || FromServer(*it));
        if (!alive) Close(*it);
        it = alive ? std::next(it) : pairs_.erase(it);
      }
      if (wanted[0].revents != 0) Accept();
    }
  }
  void Accept() {
    Pair pair;
    pair.worker = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    pair.server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in to = Loopback(server_port_);
    if (::connect(pair.server, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) return Close(pair);
    pairs_.push_back(std::move(pair));
  }
  bool FromWorker(Pair& pair) {
    const ssize_t n = ::recv(pair.worker, piece_, sizeof piece_, 0);
    if (n > 0) return SendAll(pair.server, {piece_, static_cast<size_t>(n)});
    closed_ += pair.lied ? 1 : 0;
    return false;
  }
  bool FromServer(Pair& pair) {
    const ssize_t n = ::recv(pair.server, piece_, sizeof piece_, 0);
    if (n <= 0) return false;
    pair.answers.insert(pair.answers.end(), piece_, piece_ + n);
    wire::FrameHeader header;
    while (!pair.lied && pair.answers.size() >= sizeof header) {
      std::memcpy(static_cast<void*>(&header), pair.answers.data(), sizeof header);
      if (header.type == wire::FrameType::kPullReply && claim_ > 0) {
        pair.lied = true;
        ++claims_;
        header.body_bytes = claim_;
        return SendAll(pair.worker, std::as_bytes(std::span(&header, 1)));
      }
      const size_t whole = sizeof header + header.body_bytes;
      if (pair.answers.size() < whole) return true;
      if (!SendAll(pair.worker, std::span(pair.answers).first(whole))) return false;
      pair.answers.erase(pair.answers.begin(), pair.answers.begin() + static_cast<std::ptrdiff_t>(whole));
    }
    return true;
  }

  int listener_ = -1;
  bool usable_ = false;
  uint16_t port_ = 0, server_port_ = 0;
  std::atomic<bool> stop_ = false;
  std::atomic<uint32_t> claim_ = 0, claims_ = 0, closed_ = 0;
  std::list<Pair> pairs_;
  std::byte piece_[65536];
  std::thread thread_;
};

}  // namespace cairn::testing
