// Slots that lack an owner, have one too many, or have one that must go (rule 46).
#pragma once

#include "scheduler/placement/plan.h"

namespace cairn::scheduler {

// Begins what is possible of it now. False: some slot still lacks an owner.
bool Repair(Plan& plan);

}  // namespace cairn::scheduler
