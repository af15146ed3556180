#include "transport/shm/rendezvous.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "transport/tcp/sockets.h"

namespace cairn::transport::shm {
namespace asio = boost::asio;
namespace {
constexpr uint32_t kUnnamedUser = 65534;  // what the kernel says of a user that it can't name here
constexpr size_t kMostDescriptors = 4;    // more than one is an error; room to receive and close them

std::string Name(const std::string& address, uint16_t port) {
  const char* brackets = address.find(':') == std::string::npos ? "" : "[";
  const char* close = *brackets == 0 ? "" : "]";
  return std::string(1, '\0') + "cairn-shm/1/" + brackets + address + close + ":" + std::to_string(port);
}

bool SameAddress(const sockaddr* have, const asio::ip::address& wanted) {
  if (have->sa_family == AF_INET && wanted.is_v4()) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(have);
    return ntohl(v4->sin_addr.s_addr) == wanted.to_v4().to_uint();
  }
  if (have->sa_family == AF_INET6 && wanted.is_v6()) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(have);
    const auto bytes = wanted.to_v6().to_bytes();
    return std::memcmp(&v6->sin6_addr, bytes.data(), bytes.size()) == 0;
  }
  return false;
}

bool IsOfThisHost(const asio::ip::address& address) {
  if (address.is_loopback()) return true;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return false;
  bool found = false;
  for (const ifaddrs* one = list; one != nullptr && !found; one = one->ifa_next) {
    found = one->ifa_addr != nullptr && SameAddress(one->ifa_addr, address);
  }
  freeifaddrs(list);
  return found;
}

asio::ip::address Plain(const asio::ip::address& address) {
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return address;
  return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
}
}  // namespace

std::string NameOfListener(const asio::ip::address& bound, uint16_t port, bool v6_only) {
  if (bound.is_v6() && bound.is_unspecified() && v6_only) return Name("::only", port);
  return Name(Plain(bound).to_string(), port);
}

std::vector<std::string> NamesToTry(const asio::ip::address& to, uint16_t port) {
  const asio::ip::address address = Plain(to);
  if (!IsOfThisHost(address)) return {};
  std::vector<std::string> names{Name(address.to_string(), port)};
  if (address.is_v4()) {
    names.push_back(Name("0.0.0.0", port));
    names.push_back(Name("::", port));
  } else {
    names.push_back(Name("::", port));
    names.push_back(Name("::only", port));
  }
  return names;
}

std::optional<PeerProcess> PeerOf(int fd) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return {};
  return PeerProcess{credentials.pid, credentials.uid};
}

bool IsOurUser(const PeerProcess& peer) { return peer.uid == geteuid() && peer.uid != kUnnamedUser; }

Status SendSetup(int fd, const Memory& own) {
  SetupMessage setup;
  setup.ring_bytes = own.ring_bytes();
  iovec bytes{&setup, sizeof(setup)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int descriptor = own.fd();
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(descriptor));
  const ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent == static_cast<ssize_t>(sizeof(setup))) return Status::Ok();
  return {Code::kUnavailable, std::string("shared memory: the peer can't be told: ") +
                                  (sent < 0 ? std::strerror(errno) : "its socket is full")};
}

Result<Memory> ReceiveSetup(int fd) {
  SetupMessage setup;
  iovec bytes{&setup, sizeof(setup)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return Status(Code::kUnavailable, std::string("shared memory: ") + std::strerror(errno));
  std::vector<int> descriptors;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      descriptors.push_back(descriptor);
    }
  }
  const SetupMessage wanted;
  const bool good = got == static_cast<ssize_t>(sizeof(setup)) && descriptors.size() == 1 &&
                    (message.msg_flags & MSG_CTRUNC) == 0 &&
                    std::memcmp(setup.magic, wanted.magic, sizeof(wanted.magic)) == 0 &&
                    setup.version == wanted.version;
  if (good) return Memory::MapPeers(descriptors[0], setup.ring_bytes);
  for (const int descriptor : descriptors) close(descriptor);
  // The kernel drops a descriptor that this process has no room for, and says no more than this.
  if (got == static_cast<ssize_t>(sizeof(setup)) && descriptors.empty() &&
      (message.msg_flags & MSG_CTRUNC) != 0)
    return Status(Code::kResourceExhausted, "shared memory: " + TooManyFiles());
  if (got == 0) return Status(Code::kUnavailable, "shared memory: the peer does not want it");
  return Status(Code::kProtocol, "a peer asked for shared memory in words that this version does not know");
}

}  // namespace cairn::transport::shm
