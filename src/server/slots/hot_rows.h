// The rows of one sparse table that are asked for most at one shard: a sample of the keys of all requests,
// counted in a table of fixed size: Space-Saving (Metwally, Agrawal, El Abbadi 2005) in sets of eight
// counters, so that nothing is searched. What a request costs is a comparison, and one key in kRarest or so
// a look at its set. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cairn/types.h"

namespace cairn::server {

class HotRows {
 public:
  static constexpr size_t kSets = 64, kWays = 8, kCounters = kSets * kWays;
  static constexpr uint32_t kRarest = 256;  // one key in so many where there are many; all where few are

  struct Row {
    RowKey key = 0;
    double count = 0;  // of total(); no more than it has been asked for
    bool operator==(const Row&) const = default;
  };

  // Keys that a request asks for or changes.
  void Note(std::span<const RowKey> keys) {
    if (keys.size() <= skip_) {
      skip_ -= static_cast<uint32_t>(keys.size());
      return;
    }
    Sample(keys);
  }
  // A second has passed: what was before it loses weight, everywhere in the same way, so that counts of
  // several shards can be compared. Half is gone after 11 s.
  void Age();
  // Of all keys.
  double total() const { return sketch_ ? sketch_->total : 0; }
  // At most so many, the most asked for first; none that chance could have brought here.
  std::vector<Row> Hottest(size_t most) const;

 private:
  static constexpr double kKeptInASecond = 15.0 / 16;
  static constexpr double kManyKeys = 2 << 20;  // with so many in total() it is one key in kRarest
  // A row is shown with so many finds in the sample, and that share of all.
  static constexpr double kFewestFinds = 4;
  static constexpr double kSmallestShare = 0.001;

  struct Set {
    RowKey keys[kWays] = {};
    // A counter is free at 0. `over`: what it may be too high by, since it was another row's before.
    double counts[kWays] = {}, over[kWays] = {};
  };
  struct Sketch {
    Set sets[kSets];
    double total = 0;
    uint64_t random = 0x9E3779B97F4A7C15;
  };
  uint32_t Every() const;  // one key in so many is taken now
  void Sample(std::span<const RowKey> keys);
  void Count(RowKey key, double weight);

  uint32_t skip_ = 0;  // keys before the next that is taken
  std::unique_ptr<Sketch> sketch_;
};

}  // namespace cairn::server
