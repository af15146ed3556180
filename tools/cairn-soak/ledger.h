// What the updates look like, and how a server's content is compared with an account. Update n of
// a life adds (1, n, n², hash(n)) as four int64 that wrap: the sums of a prefix 1..c are known, so
// the content tells exactly which updates it holds.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "account.h"
#include "cairn/types.h"

namespace soak {

using Entry = std::array<int64_t, 4>;
Entry UpdateOf(uint64_t number);

// The keys that life `life` of rank `rank` writes to, in the sparse tables.
std::vector<cairn::RowKey> KeysOf(uint32_t rank, uint32_t life, uint32_t count);

struct Verdict {
  uint64_t acknowledged = 0;
  uint64_t lost = 0;
  uint64_t twice = 0;
  std::vector<std::string> findings;  // one line each, at most a few
};

// Compares prefix sums for numbers up to `submitted`. Made once a stream: it holds the sums.
class Prefix {
 public:
  explicit Prefix(uint64_t submitted);
  // One place (a sparse row, or a group of four dense elements) that should hold a prefix with at
  // least `counts.acknowledged` and at most `counts.submitted` updates.
  void Check(std::span<const int64_t> place, const Counts& counts, const std::string& name,
             Verdict* verdict) const;

 private:
  std::vector<Entry> sums_;
};

}  // namespace soak
