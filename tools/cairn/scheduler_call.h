// One message to a scheduler over a plain blocking socket, with a deadline: for tools, which are
// no nodes of the cluster.
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/status.h"
#include "wire/control.h"

namespace cairn::tool {

// Sends and returns when the bytes are on their way.
Status TellScheduler(const wire::Endpoint& scheduler, const wire::ControlMessage& message,
                     int64_t timeout_ms);
// Sends and waits for the answer. The answer is the peer's: only its form has been checked.
Result<wire::ControlMessage> AskScheduler(const wire::Endpoint& scheduler,
                                          const wire::ControlMessage& message, int64_t timeout_ms);

// Of several schedulers the one that leads: the first that does not say that it is a standby. With one
// alone that is the one, whether it answers or not.
Result<wire::Endpoint> FindLeader(const std::vector<wire::Endpoint>& schedulers, int64_t timeout_ms);

}  // namespace cairn::tool
