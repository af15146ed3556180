// Numbers of 16 bits, in which a table may keep its values (TableSpec::storage): bfloat16 and
// float16, by integer arithmetic alone, so that every machine has the same bits. What a step of an
// optimizer makes is rounded at random: up with the probability of its distance from the number
// below, so that many small steps add up to what they would in float32. What is given or read is
// rounded to the nearest, ties to even.
//
// No finite number becomes infinite: what is too large is stored as the largest one. NaN is stored
// as one pattern. docs/decisions/0020-narrow-values.md has the format; narrow_inl.h says the same
// for vectors.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cairn/types.h"
#include "optimizer/gradient.h"

namespace cairn::optimizer {

inline constexpr uint32_t kFloatInfinity = 0x7F800000;
struct NarrowFormat {
  uint32_t infinity, largest, nan;
};
inline constexpr NarrowFormat kBfloat16Format{0x7F80, 0x7F7F, 0x7FC0};
inline constexpr NarrowFormat kFloat16Format{0x7C00, 0x7BFF, 0x7E00};
// The smallest float whose float16 is normal, 2^-14; and what makes integers of those below it:
// 2^-24, the step between them, becomes 2^20.
inline constexpr int32_t kFloat16Normal = 0x38800000;
inline constexpr float kFloat16Steps = 0x1p44f;
inline constexpr int32_t kFloat16StepBits = 20;
inline constexpr int32_t kFloat16Rebias = 112 << 10;  // exponents count from 127 there, from 15 here

// Elements that a row of `dim` narrow values takes: its state behind them is of floats.
inline constexpr size_t NarrowElements(size_t dim) { return dim + dim % 2; }

// 32 random bits for a column of a row: a function of the two alone.
inline uint32_t RoundingBits(uint64_t row_seed, uint32_t column) {
  uint32_t x = static_cast<uint32_t>(row_seed) + column * 0x9E3779B9u;
  x = (x ^ x >> 16) * 0x21F0AAADu;
  x ^= static_cast<uint32_t>(row_seed >> 32);
  x = (x ^ x >> 15) * 0x735A2D97u;
  return x ^ x >> 15;
}

// The float that a stored number is.
float Widened(Storage storage, uint16_t stored);
// Requires storage != kFull, here and below.
uint16_t NarrowedToNearest(Storage storage, float value);
// Up or down as 32 random bits decide.
uint16_t NarrowedAtRandom(Storage storage, float value, uint32_t random);
// The largest finite number.
float LargestOf(Storage storage);

// out[i] = the nearest of values[i]. Requires spans of equal length.
void NarrowSpan(Storage storage, std::span<const float> values, std::span<uint16_t> out);
// Each becomes the float of its nearest stored number.
void RoundSpan(Storage storage, std::span<float> values);
// out[r] = the `dim` floats of rows[r].
void WidenRows(Storage storage, std::span<const uint16_t* const> rows, float* const* out, size_t dim);

}  // namespace cairn::optimizer
