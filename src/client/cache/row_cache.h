// A worker's read cache of hot rows: keys in, the rows that were read a bounded number of steps ago
// out. It only ever holds what a pull has brought; docs/internals/consistency.md ("Cached rows") says what
// its user gets, docs/decisions/0022 why.
//
//   set = 8 ways: keys | the step in which each was read | used and referenced bits, clock hand
//   rows: way after way; the doorkeeper: fingerprints of keys that were read once, four a place
//
// A key is admitted when it is read a second time while the doorkeeper still knows it: a batch's
// rare ids pass by. Within a set the victim is a free way, then one that has expired, then one that
// was not served lately (a clock that forgives all at once). Memory is taken once, and never grows.
// Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/types.h"

namespace cairn::client {

class RowCache {
 public:
  struct Options {
    uint64_t rows = 0;   // at most so many are held; 0: none, it only counts steps
    uint32_t dim = 0;    // at least 1
    uint32_t steps = 0;  // a row is served for so many steps after the one it was read in
  };
  struct Stats {
    uint64_t hits = 0, misses = 0;  // rows asked for
    uint64_t admitted = 0, evicted = 0;
    uint64_t rows = 0;      // held now, expired ones too
    uint64_t capacity = 0;  // at most Options::rows
    uint64_t bytes = 0;     // of all its memory
  };

  explicit RowCache(const Options& options);

  // When a row was asked for.
  struct Ticket {
    uint32_t step = 0;
    uint64_t generation = 0;
  };
  // Rows that may be served after `ahead` more steps are copied to their places in `out`; the places of
  // the others (their position among `keys`) go to the front of `missing`. Returns how many those are, and
  // in `oldest` the ticket of the oldest row that was copied: while that is fresh, all are. Requires
  // out.size() == keys.size() * dim and missing.size() >= keys.size().
  size_t Take(std::span<const RowKey> keys, std::span<float> out, std::span<int64_t> missing,
              uint32_t ahead = 0, Ticket* oldest = nullptr);

  // What a read that was begun at `ticket` has brought for the places that Take left: row i of `rows` is
  // that of keys[missing[i]]. It is copied to its place in `out`, and kept where its key is hot, unless
  // the ticket is void by now.
  Ticket ticket() const { return {step_, generation_}; }
  void Give(Ticket ticket, std::span<const RowKey> keys, std::span<const int64_t> missing,
            std::span<const float> rows, std::span<float> out);

  // May what was read at `ticket` still be served?
  bool Fresh(Ticket ticket) const {
    return ticket.generation == generation_ && step_ - ticket.step <= options_.steps;
  }

  void Step();   // this worker has ended one
  void Clear();  // nothing that was read or is being read may be served any more

  Stats stats() const;

 private:
  static constexpr uint32_t kWays = 8;
  static constexpr size_t kDoorPrints = 4;
  struct alignas(128) Set {  // two lines, which are fetched together
    RowKey keys[kWays] = {};
    uint32_t read[kWays] = {};  // the step
    uint8_t used = 0, referenced = 0, hand = 0;
  };

  size_t SetOf(uint64_t mix) const {
    return static_cast<size_t>((static_cast<unsigned __int128>(mix) * sets_.size()) >> 64);
  }
  size_t TakeNone(size_t count, std::span<int64_t> missing);
  void FetchSet(size_t at) const;
  const float* Look(size_t at, RowKey key, uint32_t most_age, uint32_t* age);
  int Find(const Set& set, RowKey key) const;
  bool Expired(uint32_t read) const { return step_ - read > options_.steps; }
  bool KnownAtTheDoor(uint64_t mix);
  uint32_t Victim(Set& set);
  float* RowAt(size_t set, uint32_t way) { return data_.data() + (set * ways_ + way) * options_.dim; }
  void Keep(RowKey key, uint32_t step, const float* row);

  const Options options_;
  const uint32_t ways_;  // kWays, or all rows if there are fewer
  std::vector<Set> sets_;
  std::vector<float> data_;
  std::vector<std::array<uint32_t, kDoorPrints>> door_;  // 0: none
  uint32_t step_ = 0;
  uint64_t generation_ = 0;
  Stats stats_;
};

}  // namespace cairn::client
