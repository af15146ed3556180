// Fixed mixes and a small seeded generator. Everything here is part of a format: the same bits on
// every machine and in every version (slots of keys and initial values depend on them).
#pragma once

#include <cstdint>

namespace cairn {

// The finaliser of splitmix64: a bijection of 64-bit numbers.
constexpr uint64_t Mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBull;
  x ^= x >> 31;
  return x;
}
constexpr uint64_t Mix64(uint64_t a, uint64_t b) { return Mix64(a + 0x9E3779B97F4A7C15ull * (b + 1)); }

// splitmix64: for simulations, tests and jitter. Not for secrets.
class Random {
 public:
  explicit constexpr Random(uint64_t seed) : state_(seed) {}
  constexpr uint64_t Next() { return Mix64(state_ += 0x9E3779B97F4A7C15ull); }
  // Uniform in [0, n); n > 0.
  constexpr uint64_t Below(uint64_t n) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * n) >> 64);
  }
  constexpr int64_t Between(int64_t low, int64_t high) {  // inclusive
    return low + static_cast<int64_t>(Below(static_cast<uint64_t>(high - low) + 1));
  }
  constexpr bool Chance(double p) { return static_cast<double>(Next() >> 11) * 0x1.0p-53 < p; }

 private:
  uint64_t state_;
};

// From the system: another one at every start, nothing that anybody could foresee.
uint64_t RandomNumber();

}  // namespace cairn
