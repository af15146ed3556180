// Bounds of a shard's queues and windows that nobody has to set: the simulator draws them small, so
// that each of them is reached.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cairn::server {

struct ShardBounds {
  // Pieces of a copy that are sent and not confirmed: what an operation behind them has to wait for.
  size_t copy_pieces_under_way = 4;
  // Into a stream with more than this unconfirmed no copy is put: it does not move.
  uint64_t most_before_copy_bytes = uint64_t{16} << 20;
  // A copy larger than this is followed by a pause as long as it took.
  uint64_t small_copy_bytes = uint64_t{1} << 20;
  // More than this of later operations of a slot that is being copied, and the rest of the copy goes
  // at once: the backup has to keep them.
  uint64_t most_later_bytes = uint64_t{64} << 20;
  // A batch of operations goes out at the end of each event, or when it has this size.
  size_t batch_bytes = 256 * 1024;
  // An operation larger than this goes to no backup: they are copied to again, in pieces.
  size_t most_operation_bytes = size_t{255} << 20;
  // A slot that is larger is not compared with its heir's.
  uint64_t most_compared_bytes = uint64_t{16} << 20;
  // Frames of one primary that came too early; more are dropped and come again.
  uint64_t most_held_bytes = uint64_t{64} << 20;
};

}  // namespace cairn::server
