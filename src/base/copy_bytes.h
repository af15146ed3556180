// memcpy for large pieces. glibc's uses `rep movsb` for them, and on AMD's Zen 3 and 4 that is ten times
// slower where the destination lies 1 to 15 bytes behind the source, counted modulo a page: 64 KiB go at
// 3.5 instead of 47 GB/s. Bytes of a stream lie at any offset, so it does happen, and then it stays like
// that for as long as the frames have the same sizes.
#pragma once

#include <cstddef>
#include <cstring>

namespace cairn {

// As memcpy: the two must not overlap. Any alignment; either may be null if `bytes` is 0.
inline void CopyBytes(std::byte* to, const std::byte* from, size_t bytes) {
  using Lanes = long long __attribute__((vector_size(16)));
  constexpr size_t kStep = 4 * sizeof(Lanes);
  size_t at = 0;
  for (; at + kStep <= bytes; at += kStep) {
    Lanes lanes[4];
    for (size_t i = 0; i < 4; ++i) std::memcpy(&lanes[i], from + at + i * sizeof(Lanes), sizeof(Lanes));
    asm volatile("" ::: "memory");  // or the compiler makes a call of memcpy of it
    for (size_t i = 0; i < 4; ++i) std::memcpy(to + at + i * sizeof(Lanes), &lanes[i], sizeof(Lanes));
  }
  if (at < bytes) std::memcpy(to + at, from + at, bytes - at);
}

}  // namespace cairn
