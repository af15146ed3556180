// A node of a launcher, and how its process ended: names and words for both.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "wire/control.h"

namespace cairn::cluster {

struct NodeName {
  wire::Role role = wire::Role::kWorker;
  uint32_t index = 0;  // server index or worker rank
  auto operator<=>(const NodeName&) const = default;
};
std::string ToString(const NodeName& node);  // "scheduler", "server 0", "worker 1"
// "worker 1", "servers 0, 1 and 4"
std::string NamesOf(wire::Role role, const std::vector<uint32_t>& indices);

// How many servers the scheduler wants in the whole job (0: not said), and which of this launcher's are on
// their way out, the one that has just ended included.
struct ServersSeen {
  uint32_t wanted = 0;
  std::set<uint32_t> leaving;
};

// A worker or server that exits with it asks to be started again: it was declared dead while it was
// paused, and can't go on as what it was. (EX_TEMPFAIL of sysexits.h.)
inline constexpr int kStartAgainCode = 75;

// How a process ended: by a signal, or with a code.
struct ProcessEnd {
  int code = 0;
  int signal = 0;
  bool left_job = false;           // a worker: the scheduler had it as done before its process ended
  std::optional<bool> has_copies;  // a server: whether others have what it held, where the scheduler knows
  std::optional<ServersSeen> servers;  // a server: what the scheduler said when it had ended
  uint64_t uid = 0;                    // a server: as it registers; 0: not known
  bool clean() const { return code == 0 && signal == 0; }
  int exit_code() const { return signal != 0 ? 128 + signal : code; }  // as a shell says it
};
std::string ToString(const ProcessEnd& end);  // "exited with code 3", "was killed by signal 9 (Killed)"

}  // namespace cairn::cluster
