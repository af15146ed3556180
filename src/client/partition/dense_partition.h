// Dense tables: a slot's part is its blocks in ascending order, packed. Async pushes are copied
// (the caller goes on at once), sync contributions refer to the caller's pieces.
#pragma once

#include "base/buffer.h"
#include "cairn/status.h"
#include "client/partition/draft.h"
#include "client/partition/partition.h"

namespace cairn::client {

// Requires CheckInput. Drafts come in the order of the shard threads; each ends at a slot's end.
Result<Drafts> DraftDense(const PartitionInput& input, const Directions& what, BufferPool& pool);

}  // namespace cairn::client
