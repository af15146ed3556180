#include "table/initial_value.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/random.h"
#include "table/normal_quantile.h"

namespace cairn::table {
namespace {

int64_t Saturated(float value) {
  if (value != value) return 0;
  if (value >= 0x1p63f) return std::numeric_limits<int64_t>::max();
  if (value < -0x1p63f) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
}

// The next float towards minus infinity. Requires a finite value.
float Below(float value) {
  if (value == 0.0f) return -std::numeric_limits<float>::denorm_min();
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>(value > 0 ? bits - 1 : bits + 1);
}

}  // namespace

InitialValue::InitialValue(const Init& init, TableId table, ElementType element)
    : init_(init),
      element_(element),
      table_seed_(Mix64(init.seed, init.stream == 0 ? table.value : init.stream)) {
  CAIRN_CHECK(element == ElementType::kFloat32 || same());
}

float InitialValue::FromHash(uint64_t hash) const {
  if (init_.kind == InitKind::kUniform) {
    const double unit = static_cast<double>(hash >> 11) * 0x1p-53;  // [0, 1)
    const double low = init_.a, high = init_.b;
    const auto value = static_cast<float>(low + (high - low) * unit);
    // Rounding may reach the high end, which is exclusive.
    return value >= init_.b && init_.a < init_.b ? Below(init_.b) : value;
  }
  // 52 bits and a half: symmetric, and never 0 or 1.
  const double p = (static_cast<double>(hash >> 12) + 0.5) * 0x1p-52;
  return static_cast<float>(init_.a + init_.b * NormalQuantile(p));
}

void InitialValue::FillSame(size_t count, std::byte* out) const {
  if (init_.kind == InitKind::kZeros) {
    if (count > 0) std::memset(out, 0, count * (element_ == ElementType::kFloat32 ? 4 : 8));
  } else if (element_ == ElementType::kFloat32) {
    std::fill_n(reinterpret_cast<float*>(out), count, init_.a);
  } else {
    std::fill_n(reinterpret_cast<int64_t*>(out), count, Saturated(init_.a));
  }
}

void InitialValue::FillRow(RowKey key, size_t columns, std::byte* out) const {
  if (same()) return FillSame(columns, out);
  const uint64_t row_seed = Mix64(table_seed_, key);
  auto* values = reinterpret_cast<float*>(out);
  for (size_t c = 0; c < columns; ++c) values[c] = FromHash(Mix64(row_seed, c));
}

void InitialValue::FillElements(uint64_t begin, size_t count, std::byte* out) const {
  if (same()) return FillSame(count, out);
  auto* values = reinterpret_cast<float*>(out);
  for (size_t i = 0; i < count; ++i) values[i] = FromHash(Mix64(Mix64(table_seed_, begin + i), 0));
}

}  // namespace cairn::table
