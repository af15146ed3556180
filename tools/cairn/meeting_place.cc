#include "meeting_place.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <random>

#include "transport/tcp/sockets.h"

namespace cairn::tool {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Result<Addresses> Resolve(const std::string& host, uint16_t port, int flags) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0)
    return Status(Code::kInvalidArgument, "--master-addr " + host + " is unknown: " + gai_strerror(error));
  return Addresses(found, freeaddrinfo);
}

// 0, or the errno of listening there.
int TryBind(const addrinfo& address) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const int error = bind(fd, address.ai_addr, address.ai_addrlen) != 0 || listen(fd, 1) != 0 ? errno : 0;
  close(fd);
  return error;
}

// Every interface, for those who come by addresses of this kind.
const char* Everywhere(int family) { return family == AF_INET6 ? "::" : "0.0.0.0"; }

// Ok if `port` can be had on every interface.
Status CheckEverywhere(uint16_t port, int family, const std::string& what) {
  const Result<Addresses> any = Resolve(Everywhere(family), port, AI_NUMERICHOST);
  const int error = any.ok() ? TryBind(**any) : EADDRNOTAVAIL;
  if (error == 0) return Status::Ok();
  return {Code::kUnavailable, "port " + std::to_string(port) + " (" + what +
                                  ") can't be had: " + strerror(error) +
                                  "; choose others with --master-port, which takes two in a row"};
}

bool IsLoopback(const addrinfo& address) {
  if (address.ai_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address.ai_addr);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address.ai_addr);
  return address.ai_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

// Where the scheduler of node 0 listens: on the master's address if it is one of this machine's, on
// all where something in front of the machine has that address.
Result<std::string> ListenHost(const NodeFlags& flags, uint16_t port) {
  const std::string& host = flags.master_addr;
  const Result<Addresses> addresses = Resolve(host, port, 0);
  if (!addresses.ok()) return addresses.status();
  const bool numeric = Resolve(host, port, AI_NUMERICHOST).ok();
  if (flags.nodes > 1 && !numeric && host != "localhost" && IsLoopback(**addresses)) {
    return Status(Code::kInvalidArgument,
                  "--master-addr " + host +
                      " is the loopback address on this machine (see /etc/hosts), which no "
                      "other machine can reach: give this machine's address instead of its name");
  }
  const int error = TryBind(**addresses);
  if (error == 0) return host;
  if (error == EADDRNOTAVAIL) {
    const int family = (*addresses)->ai_family;
    if (Status status = CheckEverywhere(port, family, "the scheduler's"); !status.ok()) return status;
    return std::string(Everywhere(family));
  }
  return Status(Code::kUnavailable, "port " + std::to_string(port) + " on " + host +
                                        " (the scheduler's) can't be had: " + strerror(error) +
                                        "; choose another with --master-port");
}

// For torch.distributed, which wants to be told a port: one that is free now.
uint16_t FreePort(const std::string& host) {
  const Result<Addresses> addresses = Resolve(host, 0, AI_NUMERICHOST);
  if (!addresses.ok()) return kDefaultMasterPort;
  const int fd = socket((*addresses)->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  in_port_t port = htons(kDefaultMasterPort);
  if (fd >= 0 && bind(fd, (*addresses)->ai_addr, (*addresses)->ai_addrlen) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
    port = address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                         : reinterpret_cast<sockaddr_in&>(address).sin_port;
  }
  if (fd >= 0) close(fd);
  return ntohs(port);
}

Status CheckFlags(const NodeFlags& flags) {
  if (flags.node_rank >= flags.nodes) {
    return {Code::kInvalidArgument, "--node-rank " + std::to_string(flags.node_rank) + " of --nnodes " +
                                        std::to_string(flags.nodes) + ": ranks go from 0 to " +
                                        std::to_string(flags.nodes - 1)};
  }
  if (flags.nodes > 1 && flags.master_addr.empty()) {
    return {Code::kInvalidArgument,
            "--nnodes " + std::to_string(flags.nodes) +
                " needs --master-addr: the address of node 0, the same on every node"};
  }
  if (flags.master_port == 65535)
    return {Code::kInvalidArgument, "--master-port 65535: the port after it is needed too"};
  return Status::Ok();
}

}  // namespace

bool CanListen(const std::string& host, uint16_t port) {
  const Result<Addresses> addresses = Resolve(host.empty() ? "0.0.0.0" : host, port, 0);
  return addresses.ok() && TryBind(**addresses) == 0;
}

std::string RandomLetters(int count) {
  static constexpr char kLetters[] = "0123456789abcdefghijkmnpqrstuvwxyz";
  std::random_device random;
  std::string name;
  for (int i = 0; i < count; ++i) name.push_back(kLetters[random() % (sizeof kLetters - 1)]);
  return name;
}

Result<MeetingPlace> FindMeetingPlace(const NodeFlags& flags) {
  if (Status status = CheckFlags(flags); !status.ok()) return status;
  MeetingPlace place;
  place.cluster_id = !flags.job_id.empty() ? flags.job_id : "run-" + RandomLetters(12);
  if (flags.master_addr.empty() && flags.master_port == 0) {
    const std::string host = transport::LoopbackHost();
    place.scheduler = {host, 0};
    place.listen_host = place.server_host = host;
    place.torch = {host, FreePort(host)};
    return place;
  }
  NodeFlags full = flags;
  if (full.master_addr.empty()) full.master_addr = transport::LoopbackHost();
  if (full.master_port == 0) full.master_port = kDefaultMasterPort;
  place.scheduler = {full.master_addr, full.master_port};
  place.torch = {full.master_addr, static_cast<uint16_t>(full.master_port + 1)};
  place.server_host = full.local_addr;
  if (flags.job_id.empty() && full.nodes > 1) place.cluster_id = "job-" + wire::ToString(place.scheduler);
  if (full.node_rank > 0) return place;
  const Result<std::string> listen_host = ListenHost(full, full.master_port);
  if (!listen_host.ok()) return listen_host.status();
  place.listen_host = *listen_host;
  const Result<Addresses> torch = Resolve(full.master_addr, place.torch.port, 0);
  const int family = torch.ok() ? (*torch)->ai_family : AF_INET;
  if (Status status = CheckEverywhere(place.torch.port, family, "torch.distributed's"); !status.ok())
    return status;
  return place;
}

}  // namespace cairn::tool
