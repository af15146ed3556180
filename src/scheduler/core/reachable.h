// Whether others can reach a server at the address that it gives. One that took its loopback address for the
// one that faces the scheduler registers, looks healthy, and nobody ever gets an answer from it.
#pragma once

#include <string>

#include "cairn/status.h"
#include "wire/control.h"

namespace cairn::scheduler {

bool IsLoopbackHost(const std::string& host);
// `same_host`: the registration comes from the scheduler's own machine.
Status CheckReachable(const wire::Register& request, bool same_host);

}  // namespace cairn::scheduler
