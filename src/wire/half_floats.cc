// The loops have no branches, so that compilers vectorise them; the same bits on every machine.
#include "wire/half_floats.h"

#include <bit>
#include <cstring>

namespace cairn::wire {
namespace {

constexpr uint32_t kSign = 0x80000000u;
constexpr uint32_t kInfinity = 0x7F800000u;

struct Float16 {
  static constexpr uint16_t kHalfInfinity = 0x7C00;
  static uint16_t Pack(uint32_t bits) {
    constexpr uint32_t kLeastNormal = 113u << 23;  // 2^-14
    constexpr uint32_t kTooLarge = 143u << 23;     // 2^16
    constexpr float kMagic = 0.5f;                 // its last bit is that of the subnormals, 2^-24
    const uint32_t size = bits & ~kSign;
    // The FPU rounds to the place where a subnormal's last bit stands.
    const uint32_t subnormal =
        std::bit_cast<uint32_t>(std::bit_cast<float>(size < kLeastNormal ? size : 0) + kMagic) -
        std::bit_cast<uint32_t>(kMagic);
    const uint32_t odd = (size >> 13) & 1;
    const uint32_t normal = (size - (112u << 23) + 0xFFF + odd) >> 13;  // carries into the exponent
    const uint32_t special = size > kInfinity ? 0x7E00u : uint32_t{kHalfInfinity};
    const uint32_t half = size < kLeastNormal ? subnormal : size >= kTooLarge ? special : normal;
    return static_cast<uint16_t>((bits & kSign) >> 16 | half);
  }
  static uint32_t Unpack(uint16_t half) {
    constexpr uint32_t kExponent = 0x7C00u << 13;
    const uint32_t shifted = (half & 0x7FFFu) << 13;
    const uint32_t exponent = shifted & kExponent;
    const uint32_t normal = shifted + (112u << 23);
    const uint32_t special = normal + (112u << 23);
    // 2^-14 · 1.m − 2^-14 = 2^-14 · 0.m, exactly.
    const uint32_t subnormal =
        std::bit_cast<uint32_t>(std::bit_cast<float>((exponent == 0 ? shifted : 0) + (113u << 23)) -
                                std::bit_cast<float>(113u << 23));
    const uint32_t size = exponent == kExponent ? special : exponent == 0 ? subnormal : normal;
    return (half & 0x8000u) << 16 | size;
  }
};

struct Bfloat16 {
  static constexpr uint16_t kHalfInfinity = 0x7F80;
  static uint16_t Pack(uint32_t bits) {
    const uint32_t nan = bits >> 16 | 0x40;
    const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    return static_cast<uint16_t>((bits & ~kSign) > kInfinity ? nan : rounded);
  }
  static uint32_t Unpack(uint16_t half) { return uint32_t{half} << 16; }
};

uint32_t Load(const std::byte* from) {
  uint32_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return bits;
}

template <class Format>
bool Pack(const std::byte* from, size_t count, std::byte* to) {
  uint32_t lost = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = Load(from + 4 * i);
    const uint16_t half = Format::Pack(bits);
    lost |= Format::Unpack(half) ^ bits;
    std::memcpy(to + 2 * i, &half, sizeof(half));
  }
  return lost == 0;
}

template <class Format>
void Unpack(const std::byte* from, size_t count, std::byte* to) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t half;
    std::memcpy(&half, from + 2 * i, sizeof(half));
    const uint32_t bits = Format::Unpack(half);
    std::memcpy(to + 4 * i, &bits, sizeof(bits));
  }
}

template <class Format>
bool Round(bool to_largest, std::byte* values, size_t count) {
  uint32_t not_finite = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = Load(values + 4 * i);
    uint32_t half = Format::Pack(bits);
    const uint32_t overflows = static_cast<uint32_t>((half & 0x7FFFu) == Format::kHalfInfinity) &
                               static_cast<uint32_t>((bits & ~kSign) < kInfinity);
    half -= overflows & static_cast<uint32_t>(to_largest);  // one below Inf is the largest
    const uint32_t rounded = Format::Unpack(static_cast<uint16_t>(half));
    not_finite |= static_cast<uint32_t>((rounded & kInfinity) == kInfinity);
    std::memcpy(values + 4 * i, &rounded, sizeof(rounded));
  }
  return not_finite == 0;
}

}  // namespace

uint16_t PackHalf(HalfFormat format, uint32_t bits) {
  return format == HalfFormat::kFloat16 ? Float16::Pack(bits) : Bfloat16::Pack(bits);
}

uint32_t UnpackHalf(HalfFormat format, uint16_t half) {
  return format == HalfFormat::kFloat16 ? Float16::Unpack(half) : Bfloat16::Unpack(half);
}

bool PackHalves(HalfFormat format, const std::byte* from, size_t count, std::byte* to) {
  return format == HalfFormat::kFloat16 ? Pack<Float16>(from, count, to) : Pack<Bfloat16>(from, count, to);
}

void UnpackHalves(HalfFormat format, const std::byte* from, size_t count, std::byte* to) {
  if (format == HalfFormat::kFloat16) return Unpack<Float16>(from, count, to);
  Unpack<Bfloat16>(from, count, to);
}

bool RoundToHalf(HalfFormat format, TooLarge too_large, std::byte* values, size_t count) {
  const bool to_largest = too_large == TooLarge::kLargest;
  return format == HalfFormat::kFloat16 ? Round<Float16>(to_largest, values, count)
                                        : Round<Bfloat16>(to_largest, values, count);
}

}  // namespace cairn::wire
