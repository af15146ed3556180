// Settings of sockets and of the process that the transport needs. Plain system calls.
#pragma once

#include <cstdint>
#include <string>

#include "cairn/status.h"
#include "wire/cluster_state.h"

namespace cairn::transport {

inline constexpr int kSocketBufferBytes = 512 * 1024;

// No delay, buffers of kSocketBufferBytes, cubic, keep-alive. What the kernel does not grant is
// left as it is: none of it is needed to be correct.
void TuneSocket(int fd);
// The same for a socket that is about to connect. A server may listen at the port that it gets: the kernel
// takes that from a range in which people's ports lie too (Paddle's tutorial has 36000), and would keep it
// for a minute after the connection.
void TuneOutgoing(int fd);
// Raises the soft limit of open files to the hard one: a server has a descriptor per worker and
// thread.
void RaiseFileLimit();
// How many descriptors this process may have.
uint64_t FileLimit();
// Of a system call that failed with this errno: there are no descriptors left. And what to say then.
bool IsTooManyFiles(int error);
std::string TooManyFiles();
// The local address from which packets to `to` leave. kNotFound: its name is unknown (now); kUnavailable:
// no network leads there (now). Looks the name up, and so may block for seconds.
Result<std::string> LocalAddressTowards(const wire::Endpoint& to);
// What the name stands for on this machine, as a numeric address (the first of several); kNotFound as above.
Result<std::string> AddressOf(const std::string& host);
// The words for a name that can't be looked up.
std::string UnknownHost(const std::string& host, const std::string& why);
bool IsWildcard(const std::string& host);
// "127.0.0.1", or "::1" on a machine that has IPv6 alone.
std::string LoopbackHost();

// Whether both ends of a connected socket are on this host, as far as their addresses tell.
bool EndsOnSameHost(int fd);

}  // namespace cairn::transport
