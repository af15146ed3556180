// Sparse tables: keys are grouped by slot, repeated keys of a push are summed (of an assign the last
// one counts), and values go straight into the frames' buffers in slot order while they are
// checked.
#pragma once

#include <functional>

#include "base/buffer.h"
#include "cairn/status.h"
#include "client/partition/draft.h"
#include "client/partition/partition.h"
#include "client/partition/routes.h"

namespace cairn::client {

// Requires CheckInput. Drafts come in the order of the shard threads; each ends at a slot's end.
// Draft::keys live until the thread's next DraftSparse. With `early`, a large push is checked
// first, and its drafts are then given to that one by one, each as soon as it has its values; none are
// left to return.
using EarlyDraft = std::function<void(Draft)>;
Result<Drafts> DraftSparse(const PartitionInput& input, const Routes& routes, const Directions& what,
                           BufferPool& pool, const EarlyDraft& early = nullptr);

}  // namespace cairn::client
