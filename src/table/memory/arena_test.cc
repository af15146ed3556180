// The arena and the slabs on it: pieces do not overlap, are aligned, come back, and are counted.
#include "table/memory/arena.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/random.h"
#include "table/sparse/row_slabs.h"

namespace cairn::table {
namespace {

TEST(Arena, PiecesAreAlignedAndDoNotOverlap) {
  struct Piece {
    std::byte* data;
    size_t bytes;
    std::byte mark;
  };
  Random random(11);
  Arena arena;
  std::vector<Piece> out;
  const auto give = [&](size_t i) {
    const Piece p = out[i];
    for (size_t j = 0; j < p.bytes; ++j) ASSERT_EQ(p.data[j], p.mark);
    arena.Give(p.data, p.bytes);
    out[i] = out.back();
    out.pop_back();
  };
  for (int i = 0; i < 2000; ++i) {
    if (!out.empty() && random.Below(5) < 2) {
      give(random.Below(out.size()));
    } else {
      const size_t bytes = 1 + random.Below(random.Below(50) == 0 ? 3'000'000 : 40'000);
      Piece p{arena.Take(bytes), bytes, static_cast<std::byte>(i)};
      ASSERT_EQ(reinterpret_cast<uintptr_t>(p.data) % 64, 0u);
      std::memset(p.data, i, bytes);
      out.push_back(p);
    }
    ASSERT_LE(arena.used_bytes(), arena.mapped_bytes());
  }
  while (!out.empty()) give(0);
  EXPECT_EQ(arena.used_bytes(), 0u);
}

TEST(Arena, SizesAreRoundedByLessThanAQuarter) {
  for (size_t bytes = 1024; bytes < 6'000'000; bytes += 1 + bytes / 37) {
    EXPECT_GE(Arena::Rounded(bytes), bytes);
    EXPECT_LE(Arena::Rounded(bytes), bytes + bytes / 4 + 64) << bytes;
    EXPECT_EQ(Arena::Rounded(Arena::Rounded(bytes)), Arena::Rounded(bytes));
    EXPECT_EQ(Arena::Rounded(bytes) % 64, 0u);
  }
}

TEST(Arena, WhatComesBackIsUsedAgain) {
  Arena arena;
  for (int i = 0; i < 100; ++i) {
    std::vector<std::byte*> pieces;
    for (int j = 0; j < 20; ++j) pieces.push_back(arena.Take(Arena::kChunkBytes));
    for (std::byte* p : pieces) arena.Give(p, Arena::kChunkBytes);
  }
  EXPECT_LE(arena.mapped_bytes(), 4u << 20);
}

TEST(RowSlabs, RowsKeepTheirContentsWhileTheSlabsGrow) {
  for (size_t row_bytes : {4, 8, 12, 64, 68, 1000, 4096, 40'000, 70'000}) {
    Arena arena;
    RowSlabs slabs(arena, row_bytes);
    const size_t rows = std::max<size_t>(5, 200'000 / row_bytes);
    for (int turn = 0; turn < 2; ++turn) {
      for (size_t i = 0; i < rows; ++i) {
        const uint32_t row = slabs.Add();
        ASSERT_EQ(row, slabs.RowOf(i));
        std::memset(slabs.At(row), static_cast<int>(i * 7 + 1), row_bytes);
      }
      for (size_t i = 0; i < rows; ++i) {
        const std::byte* row = slabs.At(slabs.RowOf(i));
        ASSERT_EQ(row[0], static_cast<std::byte>(i * 7 + 1)) << i;
        ASSERT_EQ(row[row_bytes - 1], static_cast<std::byte>(i * 7 + 1)) << i;
      }
      EXPECT_GE(slabs.memory_bytes(), rows * row_bytes);
      EXPECT_LE(slabs.memory_bytes(), rows * row_bytes * 5 / 4 + 2 * Arena::kChunkBytes + 4096);
      const uint64_t memory = slabs.memory_bytes();
      slabs.Clear();
      EXPECT_EQ(slabs.count(), 0u);
      EXPECT_EQ(slabs.memory_bytes(), memory);
    }
  }
}

TEST(Arena, LargePiecesGoBackToTheSystem) {
  Arena arena;
  constexpr size_t kLarge = size_t{3} << 20;
  std::byte* const piece = arena.Take(kLarge);
  EXPECT_GE(arena.mapped_bytes(), kLarge);
  arena.Give(piece, kLarge);
  EXPECT_EQ(arena.mapped_bytes(), 0u);
  EXPECT_EQ(arena.used_bytes(), 0u);
}

}  // namespace
}  // namespace cairn::table
