// What the user asks of `cairn run`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/supervise/supervise_options.h"
#include "meeting_place.h"

namespace cairn::tool {

struct LaunchOptions {
  cluster::SuperviseOptions supervise;
  NodeFlags nodes;
  std::vector<std::string> program;  // and its arguments; with `module`: the arguments alone
  std::string module;                // python -m
  std::optional<uint32_t> threads;   // shard threads of a server
  std::optional<uint32_t> replicas, min_in_sync, slots;  // for the scheduler
  std::string log_dir;                                   // empty: a new folder of this user's
  bool no_logs = false;
  std::optional<bool> progress;  // not given: live on a terminal, else now and then
  double progress_every_s = 30;  // where it is not live
};

}  // namespace cairn::tool
