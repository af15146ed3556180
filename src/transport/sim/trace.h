// What happened in a run, as text for people and as one number for machines: the same seed gives
// the same text and the same number. Nothing that depends on addresses or on a real clock may go in.
#pragma once

#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string>

#include "base/random.h"

namespace cairn::sim {

class Trace {
 public:
  // `out` gets the lines; null: only the hash is kept.
  explicit Trace(std::FILE* out = nullptr) : out_(out) {}

  bool printing() const { return out_ != nullptr; }
  uint64_t hash() const { return hash_; }
  // The numbers that identify an event; `line` is made only where somebody reads it.
  template <class Line>
  void Add(int64_t now_us, std::initializer_list<uint64_t> numbers, Line&& line) {
    Fold(static_cast<uint64_t>(now_us));
    for (uint64_t n : numbers) Fold(n);
    if (out_ != nullptr) Print(now_us, line());
  }
  // A line for people only: a run that prints and one that does not have the same hash.
  void Print(int64_t now_us, const std::string& line) {
    if (out_ != nullptr) std::fprintf(out_, "%12.6f  %s\n", static_cast<double>(now_us) / 1e6, line.c_str());
  }

 private:
  void Fold(uint64_t n) { hash_ = Mix64(hash_, n); }
  std::FILE* out_;
  uint64_t hash_ = 0x5EED;
};

}  // namespace cairn::sim
