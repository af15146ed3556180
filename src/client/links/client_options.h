// What a client's state machine is told once, when it is made.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "transport/link/backoff.h"
#include "wire/cluster_state.h"

namespace cairn::client {

struct ClientCoreOptions {
  wire::Endpoint scheduler;
  std::vector<wire::Endpoint> schedulers;  // several, of which one leads; empty: `scheduler` alone
  std::string host = "127.0.0.1";          // ours, for the logs
  std::string cluster_id;                  // empty: whatever cluster is there
  int32_t wanted_rank = -1;
  uint64_t uid = 0;   // random, unique to this start
  uint64_t seed = 0;  // for back-off jitter
  uint64_t max_unacked_bytes = uint64_t{64}
                               << 20;  // numbered pushes; a larger single push is let through alone
  uint32_t max_unacked_frames = 1024;  // per connection; servers keep as many refusals
  int64_t heartbeat_us = 1'000'000;
  int64_t resend_after_us = 3'000'000;  // no answer for so long on a connection: reset it and resend
  Backoff::Range reconnect;
  int64_t still_waiting_log_us = 10'000'000;
  // Whether the program does nothing but wait for its calls; null: that is not known.
  std::function<bool(int64_t now_us)> program_waits;
  // In words, where the host that was last tried has a name that nobody knows; else empty. May be null.
  std::function<std::string()> unknown_host;
};

}  // namespace cairn::client
