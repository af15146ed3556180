// Turns a user's arrays into frames, one or more per shard thread, and says where the replies go.
// Pure functions of the cluster state; the caller's thread does this work, not the network's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "cairn/status.h"
#include "cairn/types.h"
#include "client/partition/dense_plan.h"
#include "client/partition/piece_list.h"
#include "client/partition/request.h"
#include "wire/cluster_state.h"

namespace cairn::client {

// A frame is closed when its values pass this (always at a slot's end): pieces fit the cache, and
// the server applies one while the next is on the way.
inline constexpr size_t kFrameTargetBytes = 256 * 1024;

// Which part of a sync round a request is (docs/internals/consistency.md, rules 33 and 34).
enum class RoundPhase : uint8_t {
  kWhole,       // in one: contributed, closed, answered
  kContribute,  // the first phase: ends with the report
  kDecide,      // the second: has no values
};

struct PartitionInput {
  const wire::ClusterState* state = nullptr;
  const wire::TableInfo* table = nullptr;
  std::span<const RowKey> keys;       // sparse
  PieceList<const std::byte> values;  // a push or contribution; empty for a pull or a bare done
  PieceList<std::byte> out;           // a pull or push-pull writes here, in the order of the keys
  Hyper hyper;
  double weight = 1.0;
  bool weighted = false;            // sync: PushOptions::weighted
  bool pull_after = false;          // PushPull, DonePull, Decide: the answer has the new values
  std::span<const std::byte> mask;  // dense pushes; only for the call
  bool borrow = false;              // PreparePush, dense: refer to the values, do not copy them
  PushOp op = PushOp::kUpdate;
  uint8_t column = 0;        // of an assign
  double value_scale = 1.0;  // sync
  bool joined = false;       // sync: weight and values do not count
  RoundPhase phase = RoundPhase::kWhole;
  bool not_finite = false;     // kContribute: the values do not count
  double scale = 1.0;          // kDecide
  bool skip = false;           // kDecide
  uint8_t pull_column = 0;     // PreparePull
  bool when_assigned = false;  // PreparePull
  // A frame is closed when its values pass this, and a larger push of rows may go in parts.
  size_t part_bytes = kFrameTargetBytes;
  // Dense: made for this table and state, or null: then it is computed for this call.
  std::shared_ptr<const DensePlan> plan;
};

// A push that is numbered, not a round: every one of an async table, and of a sync table some
// assigns.
inline bool IsNumbered(const TableSpec& spec, PushOp op) {
  return spec.mode == Mode::kAsync || op == PushOp::kAssignOnce ||
         (op == PushOp::kAssign && spec.kind == TableKind::kSparse);
}

// Checks shapes, options and, where the policy asks for it, that every value of the segments that
// are pushed is finite: the whole push is refused before anything is numbered. Duplicate keys of a
// push are summed (float: in the order of the array); of an assign the last one counts. Numbered
// pushes: the values are copied, unless input.borrow. Rounds: dense values are borrowed from the
// caller. Everything else of the input is only for the call.
// Requires IsNumbered. With `early`, a large push of rows may be handed over in parts, each a request of
// its own, before this returns the last one: they are one push to the caller, who sees to it that it
// has ended when all of them have. If this fails, nothing was handed over.
using EarlyPart = std::function<void(Request)>;
Result<Request> PreparePush(const PartitionInput& input, BufferPool& pool, const EarlyPart& early = nullptr);
// Sync table: contributions, done marks for every shard thread (with the bitmap of touched slots)
// and, with pull_after, where the new values go. Without values, with `joined` or `not_finite`, and
// in the second phase: bare dones. The round is set by the core when it is sent.
Result<Request> PrepareRound(const PartitionInput& input, BufferPool& pool);
Result<Request> PreparePull(const PartitionInput& input, BufferPool& pool);
// Bounded table: this worker's clock, for every shard thread. `last`: no step follows. The clock itself is
// set by the core when it is sent.
Request PrepareClock(const wire::ClusterState& state, TableId table, bool last, BufferPool& pool);
// Sparse: asks every shard thread for the keys of its rows, which are added to `keys` as they come.
Result<Request> PrepareKeys(const PartitionInput& input, std::vector<RowKey>* keys, BufferPool& pool);

}  // namespace cairn::client
