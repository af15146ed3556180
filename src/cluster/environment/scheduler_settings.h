// What the environment says of a scheduler, wherever one is started: `cairn scheduler`, inside Paddle's first
// server, in an embedded cluster. Pure.
#pragma once

#include "cluster/environment/environment.h"
#include "scheduler/core/scheduler.h"

namespace cairn::cluster {

// The settings that a variable gives; all others stay as they are.
void ApplySettings(const Environment& environment, scheduler::SchedulerOptions& options);

}  // namespace cairn::cluster
