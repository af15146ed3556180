// Where the values of a reply go in the caller's memory.
#pragma once

#include <cstddef>
#include <span>

#include "client/partition/request.h"

namespace cairn::client {

// Bytes of values that the reply to this part must have; 0: none are expected. Not for keys.
size_t ExpectedBytes(const ShardPart& part);
// The same for a reply of keys: as many as its entries count.
size_t KeyBytes(std::span<const wire::SlotEntry> entries);
// Requires values.size() to be what one of these said.
void Scatter(const ShardPart& part, std::span<const std::byte> values);
// Forgets the caller's memory.
void DropTargets(ShardPart& part);

}  // namespace cairn::client
