// Copies of values that notice NaN and Inf on the way: free, because copying waits for memory. All
// of them take bytes of any alignment. A scalar reference stands beside them in the test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace cairn::client {

namespace finite_internal {
using Lanes = uint32_t __attribute__((vector_size(16)));
inline constexpr uint32_t kExponent = 0x7F800000u;  // all ones: NaN or Inf
inline constexpr size_t kLaneBytes = sizeof(Lanes);

inline Lanes Load(const std::byte* from) {
  Lanes lanes;
  std::memcpy(&lanes, from, sizeof(lanes));
  return lanes;
}
// All ones in the lanes that are not finite.
inline Lanes Bad(Lanes lanes) { return reinterpret_cast<Lanes>((lanes & kExponent) == kExponent); }
inline bool Any(Lanes bad) { return (bad[0] | bad[1] | bad[2] | bad[3]) != 0; }
inline bool BadAt(const std::byte* at) {
  uint32_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return (bits & kExponent) == kExponent;
}
}  // namespace finite_internal

// Copies floats; false if one of them is not finite. Requires bytes % 4 == 0.
inline bool CopyFinite(std::byte* to, const std::byte* from, size_t bytes) {
  using namespace finite_internal;
  Lanes bad{};
  size_t at = 0;
  for (; at + kLaneBytes <= bytes; at += kLaneBytes) {
    const Lanes lanes = Load(from + at);
    std::memcpy(to + at, &lanes, sizeof(lanes));
    bad |= Bad(lanes);
  }
  bool tail = false;
  for (; at < bytes; at += sizeof(float)) {
    std::memcpy(to + at, from + at, sizeof(float));
    tail |= BadAt(from + at);
  }
  return !(tail || Any(bad));
}

// No NaN and no Inf in it. Requires bytes.size() % 4 == 0.
inline bool AllFinite(std::span<const std::byte> bytes) {
  using namespace finite_internal;
  Lanes bad{};
  size_t at = 0;
  for (; at + kLaneBytes <= bytes.size(); at += kLaneBytes) bad |= Bad(Load(bytes.data() + at));
  bool tail = false;
  for (; at < bytes.size(); at += sizeof(float)) tail |= BadAt(bytes.data() + at);
  return !(tail || Any(bad));
}

// Index of the first float that is not finite; the number of floats if there is none.
inline size_t FirstNotFinite(std::span<const std::byte> bytes) {
  const size_t count = bytes.size() / sizeof(float);
  for (size_t i = 0; i < count; ++i) {
    if (finite_internal::BadAt(bytes.data() + i * sizeof(float))) return i;
  }
  return count;
}

// to[i] += from[i], one by one and never fused; int64 wraps around.
template <class Element>
void AddTo(std::byte* to, const std::byte* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += sizeof(Element)) {
    Element sum, more;
    std::memcpy(&sum, to + at, sizeof(Element));
    std::memcpy(&more, from + at, sizeof(Element));
    sum += more;
    std::memcpy(to + at, &sum, sizeof(Element));
  }
}

}  // namespace cairn::client
