// Which of this machine's addresses faces the scheduler. Where that is given by a name that nobody knows
// yet, or no network leads there yet, it is waited for: an address that is chosen before would be
// loopback, which nobody else can reach.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cairn/status.h"
#include "wire/cluster_state.h"

namespace cairn::tool {

struct AddressWait {
  int64_t timeout_ms = 0;
  std::function<void(const std::string&)> log;  // what is waited for, at once and every ten seconds
  // Waits a moment; false: the wait is over. For a signal that ends the process.
  std::function<bool(int64_t ms)> pause;
};

// The address towards the first of `schedulers` to which one is known. kDeadlineExceeded after the time;
// kUnavailable where `pause` ended it.
Result<std::string> AwaitOwnAddress(const std::vector<wire::Endpoint>& schedulers, const AddressWait& wait);

}  // namespace cairn::tool
