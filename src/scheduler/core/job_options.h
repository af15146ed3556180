// A scheduler's options: whether a job can have them, whether they fit the job that a log is of, and what a
// new job begins with. Pure.
#pragma once

#include "cairn/status.h"
#include "scheduler/core/scheduler.h"
#include "scheduler/rules/durable.h"

namespace cairn::scheduler {

Status CheckOptions(const SchedulerOptions& options);
// The log belongs to one job: another one must not continue it by mistake.
Status CheckSameJob(const SchedulerOptions& options, const DurableState& durable);
DurableState NewJob(const SchedulerOptions& options);

}  // namespace cairn::scheduler
