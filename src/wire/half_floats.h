// float32 in two bytes: IEEE float16, and bfloat16 (the upper half of a float32). To the nearest,
// ties to even. Functions on bytes of any alignment; no allocation.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cairn::wire {

enum class HalfFormat : uint8_t { kFloat16, kBfloat16 };

// Bits of a float32 to those of the half and back. NaN stays NaN, what is too large becomes Inf.
uint16_t PackHalf(HalfFormat format, uint32_t bits);
uint32_t UnpackHalf(HalfFormat format, uint16_t half);

// Packs `count` float32. True if each of them comes back bit by bit.
bool PackHalves(HalfFormat format, const std::byte* from, size_t count, std::byte* to);
void UnpackHalves(HalfFormat format, const std::byte* from, size_t count, std::byte* to);

enum class TooLarge : uint8_t { kInfinite, kLargest };
// Replaces `count` float32 by the nearest that the format holds; a finite one beyond its range
// becomes what `too_large` says. False if one of them is not finite afterwards.
bool RoundToHalf(HalfFormat format, TooLarge too_large, std::byte* values, size_t count);

}  // namespace cairn::wire
