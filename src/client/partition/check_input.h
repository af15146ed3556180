// What a user can get wrong about a request, in words: what happened, to what, and what to do. Pure.
#pragma once

#include <cstdint>

#include "cairn/status.h"
#include "client/partition/draft.h"
#include "client/partition/partition.h"

namespace cairn::client {

// Shapes, options and modes; messages in words.
Status CheckInput(const PartitionInput& input, const Directions& what);
// Dense: names the first element of a segment in the push that is NaN or Inf; ok if there is none.
Status CheckFinite(const PartitionInput& input);
// Sparse: names the first element that is NaN or Inf, or the repeated keys whose sum is.
Status NotFiniteError(const PartitionInput& input);
// A frame can't be larger than wire::kMaxBodyBytes, and a slot's part is never split.
Status CheckFrameBytes(const PartitionInput& input, uint64_t value_bytes, uint64_t key_count,
                       uint64_t entries);

}  // namespace cairn::client
