// One frame of a request in the making: what dense and sparse partition hand to the part that
// encodes frames. Internal to the partition.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "base/buffer.h"
#include "base/recycled.h"
#include "cairn/status.h"
#include "client/partition/partition.h"
#include "client/links/routes.h"
#include "wire/data.h"

namespace cairn::client {

struct Draft {
  ShardPart part;  // server, thread and where the reply goes; no frame yet
  RecycledVector<wire::SlotEntry> entries;
  std::span<const RowKey> keys;  // in the sparse workspace
  Buffer owned;
  wire::Pieces values;
};
using Drafts = RecycledVector<Draft>;

// What the request does with the two directions.
struct Directions {
  bool push = false;
  bool pull = false;    // replies go to input.out
  bool borrow = false;  // dense pushes: refer to the caller's values instead of copying them
  uint8_t column = 0;   // pulls: goes into the entries
};

inline size_t ElementBytes(const TableSpec& spec) {
  return spec.element == ElementType::kFloat32 ? sizeof(float) : sizeof(int64_t);
}
inline bool ChecksFinite(const TableSpec& spec) {
  return spec.element == ElementType::kFloat32 && spec.non_finite == NonFinitePolicy::kReject;
}

// Both require CheckInput. Drafts come in the order of the shard threads; each ends at a slot's
// end.
Result<Drafts> DraftDense(const PartitionInput& input, const Directions& what, BufferPool& pool);
// Draft::keys live until the thread's next DraftSparse. With `early`, a large push is checked
// first, and its drafts are then given to that one by one, each as soon as it has its values; none are
// left to return.
using EarlyDraft = std::function<void(Draft)>;
Result<Drafts> DraftSparse(const PartitionInput& input, const Routes& routes,
                           const Directions& what, BufferPool& pool,
                           const EarlyDraft& early = nullptr);

// Shapes, options and modes; messages in words.
Status CheckInput(const PartitionInput& input, const Directions& what);
// The part of it that is about the options of a push or pull (check_options.cc).
Status CheckPushOptions(const PartitionInput& input, bool sync);
Status CheckPullOptions(const PartitionInput& input);
// Segments of a dense table: at least one.
inline size_t SegmentCount(const TableSpec& spec) {
  return spec.segments.empty() ? 1 : spec.segments.size();
}
// The segment is in the push. Requires CheckPushOptions.
bool InPush(const PartitionInput& input, size_t segment);
// "table "w"", and a mistake of the caller's.
inline std::string Named(const wire::TableInfo& table) {
  return "table \"" + table.spec.name + "\"";
}
inline Status Wrong(std::string text) { return {Code::kInvalidArgument, std::move(text)}; }

// Dense: names the first element of a segment in the push that is NaN or Inf; ok if there is none.
Status CheckFinite(const PartitionInput& input);
// Sparse: names the first element that is NaN or Inf, or the repeated keys whose sum is.
Status NotFiniteError(const PartitionInput& input);
// A frame can't be larger than wire::kMaxBodyBytes, and a slot's part is never split.
Status CheckFrameBytes(const PartitionInput& input, uint64_t value_bytes, uint64_t key_count,
                       uint64_t entries);

}  // namespace cairn::client
