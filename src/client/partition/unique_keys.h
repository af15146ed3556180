// De-duplication of keys for those who gather rows before they ask for them: embedding modules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cairn/types.h"

namespace cairn::client {

inline constexpr size_t kMaxUniqueKeys = (size_t{1} << 31) - 1;  // of one call

// The different keys in the order of their first appearance go to the front of `unique`, and
// inverse[i] becomes the place of keys[i] there. Returns how many there are. Requires that both
// outputs are as long as `keys` and that keys.size() <= kMaxUniqueKeys; nothing may overlap.
size_t UniqueKeys(std::span<const RowKey> keys, std::span<RowKey> unique, std::span<int64_t> inverse);

}  // namespace cairn::client
