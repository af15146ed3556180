// The rule of a bound on bytes under way: something goes when it fits, or when nothing else is under way (what
// is larger than the bound goes alone). Pure.
#pragma once

#include <cstdint>

namespace cairn::client {

constexpr bool FitsBound(uint64_t under_way, uint64_t bytes, uint64_t bound) {
  return under_way == 0 || (bytes <= bound && under_way <= bound - bytes);
}

}  // namespace cairn::client
