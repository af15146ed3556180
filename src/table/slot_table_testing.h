// What the tests of slot tables share: specs, bytes, reads and comparisons.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <initializer_list>
#include <span>
#include <vector>

#include "base/random.h"
#include "table/memory/arena.h"
#include "table/slot_table.h"

namespace cairn::table {

inline constexpr uint32_t kSlots = 4;

inline wire::TableInfo Sparse(uint32_t dim, OptimizerKind optimizer, Init init = Init::Normal(0, 1, 5)) {
  TableSpec spec{.name = "emb", .kind = TableKind::kSparse, .optimizer = optimizer, .dim = dim, .init = init};
  return {TableId{3}, spec, ViewNumber{1}};
}
inline wire::TableInfo Dense(uint64_t size, OptimizerKind optimizer, Init init = Init::Uniform(-1, 1, 5)) {
  TableSpec spec{.name = "w", .optimizer = optimizer, .size = size, .init = init};
  return {TableId{2}, spec, ViewNumber{1}};
}

template <class T>
std::span<const std::byte> Bytes(const std::vector<T>& v) {
  return std::as_bytes(std::span(v));
}
inline std::vector<float> ReadFloats(const SlotTable& table, std::span<const RowKey> keys,
                                     uint8_t column = 0) {
  std::vector<float> out(table.ReadBytes(keys.size(), column) / sizeof(float));
  table.Read(keys, column, reinterpret_cast<std::byte*>(out.data()));
  return out;
}
inline void ExpectSameBits(std::span<const float> a, std::span<const float> b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_EQ(0, std::memcmp(&a[i], &b[i], sizeof(float))) << "element " << i << ": " << a[i] << ", " << b[i];
}
inline std::vector<float> RandomFloats(Random& random, size_t n) {
  std::vector<float> v(n);
  for (float& x : v) x = static_cast<float>(random.Between(-999, 999)) * 0.0137f;
  return v;
}
// Keys of one slot: `count` of the smallest.
inline std::vector<RowKey> KeysOf(SlotId slot, size_t count) {
  std::vector<RowKey> keys;
  for (RowKey key = 0; keys.size() < count; ++key) {
    if (wire::SlotOfKey(key, kSlots) == slot) keys.push_back(key);
  }
  return keys;
}
// A mask of these segments.
inline std::vector<std::byte> MaskOf(size_t segments, std::initializer_list<size_t> in) {
  std::vector<std::byte> mask((segments + 7) / 8);
  for (size_t s : in) mask[s / 8] |= std::byte{1} << (s % 8);
  return mask;
}

}  // namespace cairn::table
