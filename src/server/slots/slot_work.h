// What the requests to a slot have cost, for the scheduler to spread slots by (docs/internals/consistency.md,
// rule 53). In bytes: what a byte of a dense value costs is 1, and the rest is measured against that. One
// addition per part of a request, none per row.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cairn::server {

struct SlotWork {
  // A part of a request has its entry, its number, its check; a row is found at a random place.
  static constexpr uint64_t kPart = 256, kRow = 64;

  uint64_t requests = 0;  // parts of pushes, contributions and pulls
  uint64_t pushed = 0;    // of pushes and contributions: the backups do it again
  uint64_t pulled = 0;    // of pulls: the primary's alone

  void Push(size_t rows, size_t value_bytes) {
    ++requests;
    pushed += kPart + rows * kRow + value_bytes;
  }
  void Pull(size_t rows, size_t value_bytes) {
    ++requests;
    pulled += kPart + rows * kRow + value_bytes;
  }
};

}  // namespace cairn::server
