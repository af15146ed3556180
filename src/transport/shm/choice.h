// Which pipe two nodes use, and with whom memory may be shared.
#pragma once

#include <cstddef>

#include "cairn/status.h"
#include "transport/shm/memory.h"

namespace cairn::transport {

enum class PipeKind {
  kAuto,  // shared memory with peers on this host, else TCP
  kTcp,   // never shared memory
  kShm,   // shared memory or nothing
};

struct PipeChoice {
  PipeKind kind = PipeKind::kAuto;
  // Peers of other users may share memory with us. Else they are reached by TCP.
  bool other_users = false;
  size_t ring_bytes = shm::kRingBytes;  // of our side of each connection
};

// CAIRN_TRANSPORT (auto, tcp, shm) and CAIRN_SHM_USERS (same, any), read once a process; what is
// not set is as above. kInvalidArgument says which words there are. The one place of this layer
// that looks at the environment: networks and listeners that are not told otherwise use it.
const Result<PipeChoice>& PipeFromEnvironment();
Result<PipeChoice> ParsePipe(const char* transport, const char* users);  // null: not set

}  // namespace cairn::transport
