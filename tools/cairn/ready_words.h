// What a server tells the launcher through --ready-fd, a line each: "uid 123" before it registers, and then
// its address. Only the server, its launcher and the scheduler know the uid: it is what makes the launcher's
// word about the process's end believable (ProcessEnded).
#pragma once

namespace cairn::tool {

inline constexpr char kUidWord[] = "uid ";

}  // namespace cairn::tool
