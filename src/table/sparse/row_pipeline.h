// The software pipeline of a batch of keys: while some rows are worked on, the rows of the next
// keys are on their way to the cache, and the index lines of the keys after those.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cairn/types.h"
#include "table/sparse/line_index.h"
#include "table/sparse/row_slabs.h"

namespace cairn::table {

// Keys go through the pipeline in groups of this many. Addresses are collected and then prefetched
// in one burst, so that the page walks of a group overlap: a prefetch among the instructions of a
// lookup waits for its walk alone. Measured on 10 M rows: 8 and 16 alike (18-27 M rows/s, the
// smaller starts faster), 32 13, a key at a time 13-16.
inline constexpr size_t kGroup = 8;

// At most this much of a row is prefetched; the hardware goes on from there.
inline constexpr size_t kPrefetchBytes = 256;

// For each key its row's number is found; where there is none, missing(key, hash) says it: a new
// row, or kNoRow. Then work(i, rows) is called for the keys in order, up to kGroup at once: keys[i]
// and those after it have the numbers `rows`. `missing` may add to index and slabs; it is not always
// called in the order of the keys.
template <class Missing, class Work>
inline void ForRowGroups(const LineIndex& index, const RowSlabs& slabs, std::span<const RowKey> keys,
                         Missing missing, Work work) {
  constexpr size_t kStages = 4;
  uint64_t hashes[kStages][kGroup];
  uint32_t rows[kStages][kGroup];
  const void* addresses[kGroup];
  const size_t groups = (keys.size() + kGroup - 1) / kGroup;
  const size_t row_bytes = slabs.row_bytes() < kPrefetchBytes ? slabs.row_bytes() : kPrefetchBytes;
  const auto size_of = [&](size_t g) { return g + 1 < groups ? kGroup : keys.size() - g * kGroup; };

  for (size_t step = 0; step < groups + kStages - 1; ++step) {
    if (const size_t g = step; g < groups) {  // where the lines are
      uint64_t* hash = hashes[g % kStages];
      const size_t n = size_of(g);
      for (size_t i = 0; i < n; ++i) {
        hash[i] = LineIndex::HashOf(keys[g * kGroup + i]);
        addresses[i] = index.LineFor(hash[i]);
      }
      for (size_t i = 0; i < n; ++i) __builtin_prefetch(addresses[i]);
    }
    if (const size_t g = step - 1; g < groups) {  // which rows they are, or that the next line knows
      const uint64_t* hash = hashes[g % kStages];
      uint32_t* row = rows[g % kStages];
      const size_t n = size_of(g);
      for (size_t i = 0; i < n; ++i) {
        const RowKey key = keys[g * kGroup + i];
        row[i] = index.FindInLine(key, hash[i]);
        if (__builtin_expect(row[i] == LineIndex::kNoRow, 0)) row[i] = missing(key, hash[i]);
        addresses[i] = row[i] < LineIndex::kFurther ? slabs.At(row[i]) : index.NextLineFor(hash[i]);
      }
      for (size_t at = 0; at < row_bytes; at += 64) {
        for (size_t i = 0; i < n; ++i) __builtin_prefetch(static_cast<const std::byte*>(addresses[i]) + at);
      }
    }
    if (const size_t g = step - 2; g < groups) {  // the rest of the lines
      const uint64_t* hash = hashes[g % kStages];
      uint32_t* row = rows[g % kStages];
      const size_t n = size_of(g);
      for (size_t i = 0; i < n; ++i) {
        if (row[i] != LineIndex::kFurther) continue;
        const RowKey key = keys[g * kGroup + i];
        row[i] = index.Find(key, hash[i]);
        if (row[i] == LineIndex::kNoRow) row[i] = missing(key, hash[i]);
        if (row[i] != LineIndex::kNoRow) __builtin_prefetch(slabs.At(row[i]));
      }
    }
    if (const size_t g = step - 3; g < groups) {
      work(g * kGroup, std::span<const uint32_t>(rows[g % kStages], size_of(g)));
    }
  }
}

// The same with work(i, row) for one key at a time.
template <class Missing, class Work>
inline void ForRows(const LineIndex& index, const RowSlabs& slabs, std::span<const RowKey> keys,
                    Missing missing, Work work) {
  ForRowGroups(index, slabs, keys, missing, [&](size_t first, std::span<const uint32_t> rows) {
    for (size_t i = 0; i < rows.size(); ++i) work(first + i, rows[i]);
  });
}

}  // namespace cairn::table
