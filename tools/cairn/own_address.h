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

// The names that a server is given for itself, as this machine knows them.
struct OwnNames {
  std::string host;       // to listen on
  std::string advertise;  // what others are told; empty: `host`
};
// A name to listen on that stands for a loopback address is told to others as that address: the scheduler
// knows whether anybody could reach it. Lines for the log where others may know a name better than this
// machine does. An error where nobody can reach what is told.
Status ExplainOwnNames(OwnNames& names, const std::function<void(const std::string&)>& log);

}  // namespace cairn::tool
