// Where the values of a reply go in the caller's memory.
#pragma once

#include <cstddef>
#include <span>

#include "client/client_core.h"

namespace cairn::client {

// Bytes of values that the reply to this part must have; 0: none are expected.
size_t ExpectedBytes(const ShardPart& part);
// Requires values.size() == ExpectedBytes(part).
void Scatter(const ShardPart& part, std::span<const std::byte> values);
// Forgets the caller's memory.
void DropTargets(ShardPart& part);

}  // namespace cairn::client
