// What a user can get wrong about the options of a push or pull, in words. Whatever a shard would
// answer with an error is found here: such an answer ends the client. Pure.
#pragma once

#include <cstddef>

#include "cairn/status.h"
#include "client/partition/partition.h"

namespace cairn::client {

Status CheckPushOptions(const PartitionInput& input, bool sync);
Status CheckPullOptions(const PartitionInput& input);
// The segment is in the push. Requires CheckPushOptions.
bool InPush(const PartitionInput& input, size_t segment);

}  // namespace cairn::client
