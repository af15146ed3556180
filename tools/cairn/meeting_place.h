// Where the processes of a job meet: the scheduler's address and torch.distributed's, on one machine
// or, as with torchrun, over several (--nnodes, --node-rank, --master-addr, --master-port).
#pragma once

#include <cstdint>
#include <string>

#include "cairn/status.h"
#include "wire/cluster_state.h"

namespace cairn::tool {

inline constexpr uint16_t kDefaultMasterPort = 29500;  // torchrun's

struct NodeFlags {
  uint32_t nodes = 1;
  uint32_t node_rank = 0;
  std::string master_addr;   // empty: this machine alone
  uint16_t master_port = 0;  // 0: any free one on one machine, else kDefaultMasterPort
  std::string job_id;        // empty: from the address where there are several nodes, else made up
  std::string local_addr;    // empty: found by the route to the master
};

struct MeetingPlace {
  wire::Endpoint scheduler;  // what nodes are told; port 0: not known before the scheduler listens
  std::string listen_host;   // node 0: what the scheduler listens on
  std::string server_host;   // what servers listen on; empty: the interface that routes to the scheduler
  wire::Endpoint torch;      // MASTER_ADDR and MASTER_PORT of the workers
  std::string cluster_id;
};

// On node 0 it looks whether the ports are free; the error names the one that is not. A wrong
// combination of flags is kInvalidArgument.
Result<MeetingPlace> FindMeetingPlace(const NodeFlags& flags);

// Whether this port can be had now, on `host` or, if that is empty, on every interface.
bool CanListen(const std::string& host, uint16_t port);

// "a1b2c3…", for names that must not meet.
std::string RandomLetters(int count);

}  // namespace cairn::tool
