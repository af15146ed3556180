// Arrays of 32-bit words that are mostly 0, as gaps and values (docs/internals/wire-format.md, "nonzero").
// Bytes of any alignment; internal to the coding of frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cairn::wire {

// Sizes and writes the coding of an array that comes in pieces, each of whole words:
//   for each piece: Count(piece);  take bytes() of memory;  Begin(memory);  for each piece: Put(piece)
class NonZeroWriter {
 public:
  void Count(std::span<const std::byte> piece);
  size_t bytes() const { return sizeof(uint32_t) + 2 * gaps_ + 4 * values_; }
  void Begin(std::byte* to);
  void Put(std::span<const std::byte> piece);

 private:
  uint64_t values_ = 0, gaps_ = 0;
  uint64_t zeros_ = 0;  // since the last value or full gap, across pieces
  std::byte* gap_at_ = nullptr;
  std::byte* value_at_ = nullptr;
};

// Writes every byte of `to`, which is whole words. False if `coded` does not say exactly what they
// are; nothing outside either is touched.
bool ReadNonZero(std::span<const std::byte> coded, std::span<std::byte> to);

}  // namespace cairn::wire
