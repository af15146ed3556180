// One caller of a client: a thread of the program, or what stands for one in the simulator.
#pragma once

#include <cstdint>

namespace cairn::client {

enum class CallerId : uint64_t {};

}  // namespace cairn::client
