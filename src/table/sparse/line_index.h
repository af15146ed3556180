// Key → row number, for one sparse table in one slot. A bucket is a cache line:
//
//   | key 0 | key 1 | key 2 | key 3 | key 4 | row 0..4 (4 B each) | count, overflowed |   64 bytes
//
// so that a lookup costs one miss. A full line sends further keys to the next one and remembers
// it. A segment is a circle of any number of lines (the home line is a multiplication, not a
// mask), grows by about an eighth at load 0.8, and is split when it has 64 Ki keys: no growth
// moves more than that. Amounts of growth are jittered by the seed, or all slots would grow at
// the same time. One thread; keys can't be erased one by one.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/random.h"
#include "cairn/types.h"
#include "table/memory/arena.h"

namespace cairn::table {

class LineIndex {
 public:
  static constexpr uint32_t kNoRow = 0xFFFFFFFF;
  static constexpr uint32_t kFurther = 0xFFFFFFFE;
  static constexpr uint64_t kSegmentKeys = 64 * 1024;

  // `arena` must outlive it. `seed` jitters sizes; nothing else depends on it.
  LineIndex(Arena& arena, uint64_t seed);
  LineIndex(const LineIndex&) = delete;
  LineIndex& operator=(const LineIndex&) = delete;
  ~LineIndex();

  // The slot of a key is the top bits of Mix64(key), equal for all keys here: another mix.
  static uint64_t HashOf(RowKey key) { return Mix64(key ^ 0xA0761D6478BD642Full); }

  // The key's row, kNoRow if it is not here. Requires hash == HashOf(key).
  uint32_t Find(RowKey key, uint64_t hash) const;

  // The steps of a batched lookup (row_pipeline.h): the addresses to prefetch first, of a key's
  // own line and of the one after it (null where there is none); then a look into the own line
  // only, which answers nine times out of ten: the row, kNoRow, or kFurther: ask Find.
  const void* LineFor(uint64_t hash) const;
  const void* NextLineFor(uint64_t hash) const;
  uint32_t FindInLine(RowKey key, uint64_t hash) const;

  // Requires that the key is not here and row < kFurther.
  void Insert(RowKey key, uint64_t hash, uint32_t row);
  // Room for so many keys at once, where they are many: growing step by step moves each ten times.
  // Requires that it is empty.
  void Reserve(uint64_t keys);
  // Inserts keys[i] → row(i) one after the other, until one is here already: how many it inserted.
  template <class RowAt>  // uint32_t(size_t i)
  size_t InsertAll(std::span<const RowKey> keys, RowAt row);
  // Empties it and keeps the memory. `keys` must be all that it holds (in any order): a few keys
  // in a large index are taken out at the cost of those keys.
  void Clear(std::span<const RowKey> keys);

  template <class F>  // void(RowKey, uint32_t row), in no particular order
  void ForEach(F f) const {
    for (const auto& segment : segments_) {
      for (uint32_t i = 0; i < segment->lines; ++i) {
        const Line& line = segment->At(i);
        for (uint32_t j = 0; j < line.count(); ++j) f(line.keys[j], line.rows[j]);
      }
    }
  }

  uint64_t size() const { return size_; }
  uint64_t memory_bytes() const;

 private:
  static constexpr uint32_t kKeysOfLine = 5;
  static constexpr uint32_t kOverflowed = 0x100;  // in meta, above the count
  struct alignas(64) Line {
    uint64_t keys[kKeysOfLine];
    uint32_t rows[kKeysOfLine];
    uint32_t meta;
    uint32_t count() const { return meta & 0xFF; }
    bool overflowed() const { return (meta & kOverflowed) != 0; }
    uint32_t RowOf(RowKey key) const;
  };
  static_assert(sizeof(Line) == 64);
  static constexpr uint32_t kChunkBits = std::bit_width(Arena::kChunkBytes / sizeof(Line)) - 1;
  static constexpr uint32_t kChunkLines = 1u << kChunkBits;
  static_assert(kChunkLines * sizeof(Line) == Arena::kChunkBytes);

  struct Segment {
    std::vector<Line*> chunks;  // of kChunkLines, the last one may be shorter
    uint32_t lines = 0;
    uint32_t depth = 0;  // how many of the hash's top bits all its keys share
    uint64_t keys = 0;
    uint32_t Home(uint64_t hash) const {
      return static_cast<uint32_t>((static_cast<unsigned __int128>(hash << depth) * lines) >> 64);
    }
    Line& At(uint32_t line) const { return chunks[line >> kChunkBits][line & (kChunkLines - 1)]; }
    uint32_t After(uint32_t line) const { return line + 1 == lines ? 0 : line + 1; }
    bool Full() const { return keys >= uint64_t{lines} * 4; }  // load 0.8
  };

  size_t DirectoryOf(uint64_t hash) const { return (hash >> 1) >> (63 - depth_); }
  Segment& SegmentOf(uint64_t hash) const { return *directory_[DirectoryOf(hash)]; }
  uint32_t Jittered(uint32_t lines) const;
  void TakeLines(Segment& segment, uint32_t lines);
  void GiveLines(Segment& segment);
  static void Place(Segment& segment, RowKey key, uint64_t hash, uint32_t row);
  void Grow(Segment& segment);
  void Split(Segment& segment, uint64_t hash);

  Arena& arena_;
  const uint64_t seed_;
  uint64_t size_ = 0;
  uint32_t depth_ = 0;
  std::vector<Segment*> directory_;  // by the top depth_ bits of the hash
  std::vector<std::unique_ptr<Segment>> segments_;
};

// The row, or kNoRow if none of the line's keys is the one.
inline uint32_t LineIndex::Line::RowOf(RowKey key) const {
  uint32_t match = 0;
#pragma GCC unroll 5
  for (uint32_t i = 0; i < kKeysOfLine; ++i) match |= static_cast<uint32_t>(keys[i] == key) << i;
  match &= (1u << count()) - 1;  // places above the count hold anything
  return match == 0 ? kNoRow : rows[std::countr_zero(match)];
}

inline const void* LineIndex::LineFor(uint64_t hash) const {
  if (size_ == 0) return nullptr;
  const Segment& segment = SegmentOf(hash);
  return &segment.At(segment.Home(hash));
}

inline const void* LineIndex::NextLineFor(uint64_t hash) const {
  if (size_ == 0) return nullptr;
  const Segment& segment = SegmentOf(hash);
  return &segment.At(segment.After(segment.Home(hash)));
}

inline uint32_t LineIndex::FindInLine(RowKey key, uint64_t hash) const {
  if (size_ == 0) return kNoRow;
  const Segment& segment = SegmentOf(hash);
  const Line& line = segment.At(segment.Home(hash));
  const uint32_t row = line.RowOf(key);
  return row == kNoRow && line.overflowed() ? kFurther : row;
}

template <class RowAt>
size_t LineIndex::InsertAll(std::span<const RowKey> keys, RowAt row) {
  constexpr size_t kAhead = 16;  // keys whose lines are on their way to the cache
  uint64_t hashes[kAhead];
  const auto announce = [&](size_t i) {
    if (i >= keys.size()) return;
    hashes[i % kAhead] = HashOf(keys[i]);
    __builtin_prefetch(LineFor(hashes[i % kAhead]), 1);
  };
  for (size_t i = 0; i < kAhead; ++i) announce(i);
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint64_t hash = hashes[i % kAhead];
    if (Find(keys[i], hash) != kNoRow) return i;
    Insert(keys[i], hash, row(i));
    announce(i + kAhead);
  }
  return keys.size();
}

}  // namespace cairn::table
