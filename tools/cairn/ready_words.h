// What a node tells its launcher through --ready-fd, a line each. A server: "uid 123" before it registers,
// and then its address. Only the server, its launcher and the scheduler know the uid: it is what makes the
// launcher's word about the process's end believable (ProcessEnded). A scheduler: its port, and at the end
// the job's status.
#pragma once

#include <string>

namespace cairn::tool {

inline constexpr char kUidWord[] = "uid ";

// Nothing if there is no launcher (-1), or it is gone.
void TellLauncher(int ready_fd, const std::string& line);

}  // namespace cairn::tool
