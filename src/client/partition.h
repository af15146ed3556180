// Turns a user's arrays into frames, one or more per shard thread, and says where the replies go.
// Pure functions of the cluster state; the caller's thread does this work, not the network's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/buffer.h"
#include "cairn/status.h"
#include "cairn/types.h"
#include "client/client_core.h"
#include "wire/cluster_state.h"

namespace cairn::client {

// A frame is closed when its values pass this (always at a slot's end): pieces fit the cache, and
// the server applies one while the next is on the way.
inline constexpr size_t kFrameTargetBytes = 256 * 1024;

struct PartitionInput {
  const wire::ClusterState* state = nullptr;
  const wire::TableInfo* table = nullptr;
  std::span<const RowKey> keys;       // sparse
  std::span<const std::byte> values;  // a push or contribution; empty for a pull or a bare done
  std::span<std::byte> out;           // a pull or push-pull writes here, in the order of the keys
  Hyper hyper;
  double weight = 1.0;
  bool pull_after = false;  // PushPull
};

// Checks shapes and, where the policy asks for it, that every value is finite: the whole push is
// refused before anything is numbered. Duplicate keys of a push are summed (float: in the order
// of the array). Async: the values are copied. Sync: dense values are borrowed from the caller.
Result<Request> PreparePush(const PartitionInput& input, BufferPool& pool);  // async table
// Sync table: contributions, done marks for every shard thread (with the bitmap of touched slots)
// and, with pull_after, where the new values go. Without values: a bare done. The round is set by
// the core when it is sent.
Result<Request> PrepareRound(const PartitionInput& input, BufferPool& pool);
Result<Request> PreparePull(const PartitionInput& input, BufferPool& pool);

}  // namespace cairn::client
