// Sparse tables as a server has them, filled, for micro_table.cc and micro_table_cases.cc: 256 slots
// over one arena, and frames of random keys cut by slot as they come to a server.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/random.h"
#include "cairn/types.h"
#include "table/memory/arena.h"
#include "table/memory/page_supply.h"
#include "table/slot_table.h"

namespace bench {

inline constexpr uint32_t kSlots = 256;
inline constexpr uint32_t kDim = 16;

// Keys of a frame by slot, one after the other.
struct Frame {
  std::vector<cairn::RowKey> keys;
  std::vector<size_t> begin;  // kSlots + 1
  std::span<const cairn::RowKey> of(uint32_t slot) const {
    return std::span(keys).subspan(begin[slot], begin[slot + 1] - begin[slot]);
  }
};
// Of random keys below `rows`.
std::vector<Frame> MakeFrames(uint64_t rows, size_t keys, size_t frames);

// How long a batch took while the tables were filled: the longest of all, in this thread's own time
// and by the clock, without and with a page that the system gave meanwhile.
struct Pauses {
  double growth_us = 0;  // index and slabs grow
  double page_us = 0;    // the first touch of a page, and what grows beside it
  double wall_us = 0;    // either, by the clock: other programs on the machine count
  uint64_t batches = 0, with_page = 0, above_5_ms = 0;
};

struct TableOptions {
  uint64_t rows = 0;
  cairn::OptimizerKind optimizer = cairn::OptimizerKind::kSgd;
  cairn::Storage storage = cairn::Storage::kFull;
};

struct SparseTables {
  static constexpr size_t kBatch = 16;  // keys of a slot in one batch while filling
  explicit SparseTables(const TableOptions& options);

  // One push or pull of a frame, slot by slot.
  void Push(const Frame& frame, std::span<const float> values, const cairn::Hyper& hyper);
  // The same with the checks of a server; false if something is refused.
  bool CheckAndPush(const Frame& frame, std::span<const float> values, const cairn::Hyper& hyper);
  void Pull(const Frame& frame, std::span<float> out) const;

  const TableOptions options;
  cairn::table::PageSupply pages;
  cairn::table::Arena arena{&pages};
  std::vector<std::unique_ptr<cairn::table::SlotTable>> slots;
  size_t row_bytes = 0;        // values and state
  uint64_t counted_bytes = 0;  // what the tables say they take
  Pauses pauses;
};

// Of this process, in bytes, from /proc/self/smaps_rollup; 0 where there is none.
struct ProcessMemory {
  uint64_t resident = 0, huge = 0;
};
ProcessMemory ReadProcessMemory();

}  // namespace bench
