// A peer that talks through shared memory by hand, written after docs/internals/wire-format.md and not with
// the transport's own code, so that it may also do everything wrong. Blocking, with a deadline.
#pragma once

#include <fcntl.h>
#include <linux/memfd.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "wire/cluster_state.h"

namespace cairn::transport {

class ShmPeer {
 public:
  static constexpr int kDeadlineMs = 20'000;
  static constexpr size_t kWords = 4096;
  static constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | 0x10 /* FUTURE_WRITE */ | F_SEAL_SEAL;

  struct Setup {
    char magic[4] = {'C', 'S', 'H', 'M'};
    uint32_t version = 1;
    uint64_t ring_bytes = size_t{2} << 20;
    uint64_t reserved[6] = {};
  };

  static sockaddr_un Address(const wire::Endpoint& at, socklen_t* length) {
    const std::string name = "cairn-shm/1/" + at.host + ":" + std::to_string(at.port);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    *length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return address;
  }
  static int Dial(const wire::Endpoint& to) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t length = 0;
    const sockaddr_un address = Address(to, &length);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0) return fd;
    ::close(fd);
    return -1;
  }
  static int NewMemory(size_t ring_bytes) {
    const int fd = static_cast<int>(::syscall(SYS_memfd_create, "test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd >= 0 && ::ftruncate(fd, static_cast<off_t>(kWords + ring_bytes)) != 0) return -1;
    return fd;
  }
  static bool SendSetup(int socket, const Setup& setup, const std::vector<int>& descriptors) {
    iovec bytes{const_cast<Setup*>(&setup), sizeof setup};
    std::vector<char> control(CMSG_SPACE(descriptors.size() * sizeof(int)));
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    if (!descriptors.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
      std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
    }
    return ::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof setup);
  }
  // The descriptor of the other side's memory; -1 if it closed instead.
  static int ReceiveSetup(int socket, Setup* setup) {
    pollfd readable{socket, POLLIN, 0};
    if (::poll(&readable, 1, kDeadlineMs) != 1) return -1;
    iovec bytes{setup, sizeof *setup};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (::recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof *setup)) return -1;
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    int fd = -1;
    if (header != nullptr) std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return fd;
  }

  explicit ShmPeer(const wire::Endpoint& to) : ShmPeer(Dial(to), /*speaks_first=*/true) {}
  // Over a Unix socket that stands.
  ShmPeer(int socket, bool speaks_first) : fd_(socket) {
    const int memory = NewMemory(setup_.ring_bytes);
    own_ = Map(memory, PROT_READ | PROT_WRITE);
    ::fcntl(memory, F_ADD_SEALS, kSeals);
    if (speaks_first && !SendSetup(fd_, setup_, {memory})) return;
    Setup theirs;
    peer_fd_ = ReceiveSetup(fd_, &theirs);
    if (peer_fd_ >= 0 && theirs.ring_bytes == setup_.ring_bytes) peer_ = Map(peer_fd_, PROT_READ);
    if (!speaks_first) SendSetup(fd_, setup_, {memory});
    ::close(memory);
  }
  ShmPeer(const ShmPeer&) = delete;
  ~ShmPeer() {
    Close();
    if (peer_fd_ >= 0) ::close(peer_fd_);
    if (own_ != nullptr) ::munmap(own_, kWords + setup_.ring_bytes);
    if (peer_ != nullptr) ::munmap(peer_, kWords + setup_.ring_bytes);
  }

  bool connected() const { return peer_ != nullptr; }
  int fd() const { return fd_; }
  int peer_memory() const { return peer_fd_; }
  size_t ring_bytes() const { return setup_.ring_bytes; }
  std::atomic_ref<uint64_t> written() { return Word(own_, 0); }
  std::atomic_ref<uint64_t> taken() { return Word(own_, 128); }
  std::atomic_ref<uint64_t> wants_data() { return Word(own_, 256); }
  std::atomic_ref<uint64_t> peer_wants_data() { return Word(peer_, 256); }
  std::atomic_ref<uint64_t> peer_written() { return Word(peer_, 0); }

  // Gives up where the other side closes or takes nothing.
  void Send(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const uint64_t at = written().load();
      const size_t room = setup_.ring_bytes - (at - Word(peer_, 128).load());
      if (room == 0) {
        if (!Sleep(264, [&] { return at - Word(peer_, 128).load() < setup_.ring_bytes; })) return;
        continue;
      }
      const size_t offset = at % setup_.ring_bytes;
      const size_t n = std::min({bytes.size(), room, setup_.ring_bytes - offset});
      std::memcpy(own_ + kWords + offset, bytes.data(), n);
      written().store(at + n);
      Ring(256, &rung_data_);
      bytes = bytes.subspan(n);
    }
  }
  // `bytes`, or fewer where the other side closes before.
  std::vector<std::byte> Read(size_t bytes) {
    std::vector<std::byte> all;
    bool open = true;
    while (all.size() < bytes) {
      const uint64_t at = taken().load();
      const size_t there = peer_written().load() - at;
      if (there == 0) {
        if (!open) break;
        open = Sleep(256, [&] { return peer_written().load() != at; });
        continue;
      }
      const size_t offset = at % setup_.ring_bytes;
      const size_t n = std::min({there, bytes - all.size(), setup_.ring_bytes - offset});
      all.insert(all.end(), peer_ + kWords + offset, peer_ + kWords + offset + n);
      taken().store(at + n);
      Ring(264, &rung_room_);
    }
    return all;
  }
  void Wake() { (void)!::send(fd_, "x", 1, MSG_NOSIGNAL); }
  void EndSending() { ::shutdown(fd_, SHUT_WR); }
  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  // True once the other side has closed.
  bool Closed() {
    char bells[64];
    while (true) {
      pollfd readable{fd_, POLLIN, 0};
      if (::poll(&readable, 1, kDeadlineMs) != 1) return false;
      if (::recv(fd_, bells, sizeof bells, 0) <= 0) return true;
    }
  }

 private:
  static std::atomic_ref<uint64_t> Word(std::byte* base, size_t offset) {
    return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(base + offset));
  }
  std::byte* Map(int fd, int protection) const {
    void* base = ::mmap(nullptr, kWords + setup_.ring_bytes, protection, MAP_SHARED, fd, 0);
    return base == MAP_FAILED ? nullptr : static_cast<std::byte*>(base);
  }
  void Ring(size_t word, uint64_t* rung) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const uint64_t asked = Word(peer_, word).load();
    if (asked == 0 || asked == *rung) return;
    *rung = asked;
    Wake();
  }
  // False where the other side has closed, or nothing came in time.
  template <class Ready>
  bool Sleep(size_t word, Ready ready) {
    Word(own_, word).store(++sleeps_);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    bool open = true;
    if (!ready()) {
      char bells[64];
      pollfd readable{fd_, POLLIN, 0};
      open = ::poll(&readable, 1, kDeadlineMs) == 1 && ::recv(fd_, bells, sizeof bells, 0) > 0;
    }
    Word(own_, word).store(0);
    return open;
  }

  Setup setup_;
  int fd_ = -1, peer_fd_ = -1;
  std::byte* own_ = nullptr;
  std::byte* peer_ = nullptr;
  uint64_t sleeps_ = 0, rung_data_ = 0, rung_room_ = 0;
};

}  // namespace cairn::transport
