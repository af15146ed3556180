// Shares: bytes are moved and primaries handed over until each server has its own, by its threads (rule 46).
// Asked for a thousand servers with every record, so nothing is looked at again that can't have changed;
// balance_reference.h says the same in the plain way.
//
// It comes to rest: a move is begun only if it brings two servers nearer to each other, a handover only if
// the server that it goes to has fewer primaries then than the other had; and where a move comes from is
// remembered (moving_from), so that its end undoes nothing.
#pragma once

#include "scheduler/placement/plan.h"

namespace cairn::scheduler {

void MoveBytes(Plan& plan);
void MovePrimaries(Plan& plan);

}  // namespace cairn::scheduler
