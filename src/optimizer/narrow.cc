// One number at a time: for rows that are made, for tests, and as the words of what narrow_inl.h does.
#include "optimizer/narrow.h"

#include "base/check.h"
#include "optimizer/kernels.h"

namespace cairn::optimizer {
namespace {

const NarrowFormat& FormatOf(Storage storage) {
  CAIRN_CHECK(storage != Storage::kFull);
  return storage == Storage::kBfloat16 ? kBfloat16Format : kFloat16Format;
}

// A number without its sign as `whole` steps of the format, and what is left of one: `rest` of
// 2^bits, and perhaps something smaller yet.
struct Steps {
  uint32_t whole, rest;
  int bits;
  bool more = false;
};
// Requires a finite number's bits, without the sign.
Steps StepsOf(Storage storage, uint32_t bits) {
  if (storage == Storage::kBfloat16) return {bits >> 16, bits & 0xFFFF, 16};
  if (bits >= kFloat16Normal) return {(bits >> 13) - kFloat16Rebias, bits & 0x1FFF, 13};
  const float scaled = std::bit_cast<float>(bits) * kFloat16Steps;
  const auto fixed = static_cast<uint32_t>(scaled);
  return {fixed >> kFloat16StepBits, fixed & ((1u << kFloat16StepBits) - 1), kFloat16StepBits,
          static_cast<float>(fixed) != scaled};
}

template <class Up>  // bool(Steps)
uint16_t Narrowed(Storage storage, float value, Up up) {
  const NarrowFormat& format = FormatOf(storage);
  const uint32_t all = std::bit_cast<uint32_t>(value), sign = all >> 16 & 0x8000, bits = all & 0x7FFFFFFF;
  if (bits > kFloatInfinity) return static_cast<uint16_t>(format.nan);
  if (bits == kFloatInfinity) return static_cast<uint16_t>(sign | format.infinity);
  const Steps steps = StepsOf(storage, bits);
  return static_cast<uint16_t>(sign | std::min(format.largest, steps.whole + (up(steps) ? 1 : 0)));
}

}  // namespace

float Widened(Storage storage, uint16_t stored) {
  if (storage == Storage::kBfloat16) return std::bit_cast<float>(uint32_t{stored} << 16);
  const uint32_t sign = (stored & 0x8000u) << 16, bits = stored & 0x7FFFu;
  if (bits >= kFloat16Format.infinity) return std::bit_cast<float>(sign | bits << 13 | kFloatInfinity);
  if (bits >= 0x400) return std::bit_cast<float>(sign | (bits + kFloat16Rebias) << 13);
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(bits) * 0x1p-24f));
}

uint16_t NarrowedToNearest(Storage storage, float value) {
  return Narrowed(storage, value, [](const Steps& steps) {
    const uint32_t half = 1u << (steps.bits - 1);
    if (steps.rest != half) return steps.rest > half;
    return steps.more || (steps.whole & 1) != 0;
  });
}

uint16_t NarrowedAtRandom(Storage storage, float value, uint32_t random) {
  return Narrowed(storage, value, [random](const Steps& steps) {
    return steps.rest + (random >> (32 - steps.bits)) >= 1u << steps.bits;
  });
}

float LargestOf(Storage storage) {
  return Widened(storage, static_cast<uint16_t>(FormatOf(storage).largest));
}

void NarrowSpan(Storage storage, std::span<const float> values, std::span<uint16_t> out) {
  CAIRN_CHECK(values.size() == out.size());
  for (size_t i = 0; i < values.size(); ++i) out[i] = NarrowedToNearest(storage, values[i]);
}

void RoundSpan(Storage storage, std::span<float> values) {
  for (float& value : values) value = Widened(storage, NarrowedToNearest(storage, value));
}

void WidenRows(Storage storage, std::span<const uint16_t* const> rows, float* const* out, size_t dim) {
  ChosenKernels().widen_rows(storage, rows.data(), out, rows.size(), dim);
}

}  // namespace cairn::optimizer
