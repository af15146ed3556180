// A scheduler's options: whether a job can have them, whether they fit the job that a log is of, and what a
// new job begins with. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/status.h"
#include "scheduler/core/scheduler.h"
#include "scheduler/rules/durable.h"

namespace cairn::scheduler {

Status CheckOptions(const SchedulerOptions& options);
// The log belongs to one job: another one must not continue it by mistake.
Status CheckSameJob(const SchedulerOptions& options, const DurableState& durable);
DurableState NewJob(const SchedulerOptions& options);
// What the user is told once the start is logged. `replicas_before`: owners of each slot as the log had them.
std::vector<std::string> StartLines(const SchedulerOptions& options, const DurableState& durable,
                                    uint32_t replicas_before);

}  // namespace cairn::scheduler
