// The two-stage software pipeline of a batch of keys: while one row is worked on, the rows after it
// are on their way to the cache, and the index lines of the ones after those.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "cairn/types.h"
#include "table/line_index.h"
#include "table/row_slabs.h"

namespace cairn::table {

// How many keys a stage is ahead of the next one. Measured: 8 is too few to hide a miss, above 32
// lines are pushed out again.
inline constexpr size_t kLead = 16;

[[gnu::always_inline]] inline void PrefetchRow(const std::byte* row, size_t row_bytes) {
  constexpr size_t kLine = 64, kMost = 256;  // the hardware goes on from there
  const size_t bytes = row_bytes < kMost ? row_bytes : kMost;
  for (size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(row + at, 1);
  __builtin_prefetch(row + bytes - 1, 1);
}

// For each key in order: row = find(key, hash), possibly kNoRow; later, in the same order,
// work(i, row). `find` may add rows to index and slabs.
template <class FindRow, class Work>
inline void ForRows(const LineIndex& index, const RowSlabs& slabs, std::span<const RowKey> keys, FindRow find,
                    Work work) {
  constexpr size_t kRing = 2 * kLead;
  uint64_t hashes[kRing];
  uint32_t rows[kRing];
  const size_t n = keys.size();
  for (size_t i = 0; i < n + 2 * kLead; ++i) {
    if (i >= 2 * kLead) work(i - 2 * kLead, rows[i % kRing]);
    if (i < n) {
      hashes[i % kRing] = LineIndex::HashOf(keys[i]);
      index.Prefetch(hashes[i % kRing]);
    }
    if (i >= kLead && i - kLead < n) {
      const size_t j = i - kLead;
      const uint32_t row = find(keys[j], hashes[j % kRing]);
      rows[j % kRing] = row;
      if (row != LineIndex::kNoRow) PrefetchRow(slabs.At(row), slabs.row_bytes());
    }
  }
}

// Calls f with the row length: a constant for the usual ones, so that the loop over a row is
// straight code.
template <class F>
inline void WithDim(uint32_t dim, F f) {
  switch (dim) {
    case 4: return f(std::integral_constant<size_t, 4>{});
    case 8: return f(std::integral_constant<size_t, 8>{});
    case 16: return f(std::integral_constant<size_t, 16>{});
    case 32: return f(std::integral_constant<size_t, 32>{});
    case 64: return f(std::integral_constant<size_t, 64>{});
    default: return f(static_cast<size_t>(dim));
  }
}

}  // namespace cairn::table
