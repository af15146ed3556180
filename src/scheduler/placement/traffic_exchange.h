// Shard threads that do clearly more than the others give slots away, or exchange them, until the work is
// even (rule 53). Only once everything else is in its place, and without putting the bytes out of it.
//
// Each exchange takes work from a thread to one that has less, and leaves both below what the first had by
// at least a quarter of a slot's work: so it comes to an end, and a slot that alone is too much for a thread
// stays. Which slot goes back is looked up in order of their work: n log n for two threads with n slots.
#pragma once

#include "scheduler/placement/plan.h"
#include "scheduler/placement/traffic.h"

namespace cairn::scheduler {

void MoveTraffic(Plan& plan, const SlotTraffic& traffic);

}  // namespace cairn::scheduler
