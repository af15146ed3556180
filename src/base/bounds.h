// Which bounds of windows and queues were reached: CAIRN_AT_BOUND(name) counts in the simulator's own
// build of the roles (CAIRN_WITH_PLANTED_BUGS), and does nothing anywhere else.
#pragma once

#ifdef CAIRN_WITH_PLANTED_BUGS
#include <array>
#include <cstddef>
#include <cstdint>

namespace cairn::bounds {
enum class Bound {
#define CAIRN_BOUND(name, text) name,
#include "base/bounds.inc"
#undef CAIRN_BOUND
  kCount
};
using Counts = std::array<uint64_t, static_cast<size_t>(Bound::kCount)>;
// In this thread, since it was last cleared.
inline thread_local Counts reached{};
}  // namespace cairn::bounds
#define CAIRN_AT_BOUND(name) (++::cairn::bounds::reached[static_cast<size_t>(::cairn::bounds::Bound::name)])
#else
#define CAIRN_AT_BOUND(name) static_cast<void>(0)
#endif
