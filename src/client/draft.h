// One frame of a request in the making: what dense and sparse partition hand to the part that
// encodes frames. Internal to the partition.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "cairn/status.h"
#include "client/partition.h"
#include "client/routes.h"
#include "wire/data.h"

namespace cairn::client {

struct Draft {
  ShardPart part;  // server, thread and where the reply goes; no frame yet
  std::vector<wire::SlotEntry> entries;
  std::span<const RowKey> keys;  // in the sparse workspace
  Buffer owned;
  std::vector<std::span<const std::byte>> values;
};

// What the request does with the two directions.
struct Directions {
  bool push = false;
  bool pull = false;    // replies go to input.out
  bool borrow = false;  // dense pushes: refer to the caller's values instead of copying them
};

inline size_t ElementBytes(const TableSpec& spec) {
  return spec.element == ElementType::kFloat32 ? sizeof(float) : sizeof(int64_t);
}
inline bool ChecksFinite(const TableSpec& spec) {
  return spec.element == ElementType::kFloat32 && spec.non_finite == NonFinitePolicy::kReject;
}

// Both require CheckInput. Drafts come in the order of the routes; each ends at a slot's end.
Result<std::vector<Draft>> DraftDense(const PartitionInput& input, const Routes& routes,
                                      const Directions& what, BufferPool& pool);
// Draft::keys live until the thread's next DraftSparse.
Result<std::vector<Draft>> DraftSparse(const PartitionInput& input, const Routes& routes,
                                       const Directions& what, BufferPool& pool);

// Shapes, options and modes; messages in words.
Status CheckInput(const PartitionInput& input, const Directions& what);
// Names the first element that is NaN or Inf.
Status NotFiniteError(const PartitionInput& input);
// A frame can't be larger than wire::kMaxBodyBytes, and a slot's part is never split.
Status CheckFrameBytes(const PartitionInput& input, uint64_t value_bytes, uint64_t key_count,
                       uint64_t entries);

}  // namespace cairn::client
