#include "server/slots/hot_rows.h"

#include <algorithm>

namespace cairn::server {

static_assert(HotRows::kSets == uint64_t{1} << (64 - 58));

uint32_t HotRows::Every() const {
  return static_cast<uint32_t>(std::clamp(kRarest * sketch_->total / kManyKeys, 1.0, double{kRarest}));
}

// The gap to the next key is random, or keys that always stand at the same place of a request would be
// missed, or counted again and again. A key counts for all that gaps leave out on average.
void HotRows::Sample(std::span<const RowKey> keys) {
  if (!sketch_) sketch_ = std::make_unique<Sketch>();
  Sketch& s = *sketch_;
  size_t at = skip_;
  while (at < keys.size()) {
    const uint32_t every = Every();
    Count(keys[at], every);
    s.random ^= s.random << 13;
    s.random ^= s.random >> 7;
    s.random ^= s.random << 17;
    at += 1 + (s.random >> 32) % (2 * every - 1);  // 1 to 2 · every − 1
  }
  skip_ = static_cast<uint32_t>(at - keys.size());
}

void HotRows::Count(RowKey key, double weight) {
  sketch_->total += weight;
  Set& set = sketch_->sets[key * 0x9E3779B97F4A7C15 >> 58];
  size_t least = 0;
  for (size_t i = 0; i < kWays; ++i) {
    if (set.keys[i] == key) {
      set.counts[i] += weight;
      return;
    }
    if (set.counts[i] < set.counts[least]) least = i;
  }
  set.keys[least] = key;
  set.over[least] = set.counts[least];
  set.counts[least] += weight;
}

void HotRows::Age() {
  if (!sketch_) return;
  sketch_->total *= kKeptInASecond;
  for (Set& set : sketch_->sets)
    for (size_t i = 0; i < kWays; ++i) {
      set.counts[i] *= kKeptInASecond;
      set.over[i] *= kKeptInASecond;
    }
  if (sketch_->total < 1) sketch_.reset();  // nobody asks for this table any more
}

std::vector<HotRows::Row> HotRows::Hottest(size_t most) const {
  std::vector<Row> rows;
  if (!sketch_) return rows;
  const double least = std::max(kFewestFinds * Every(), sketch_->total * kSmallestShare);
  for (const Set& set : sketch_->sets)
    for (size_t i = 0; i < kWays; ++i)
      if (const double count = set.counts[i] - set.over[i]; count >= least)
        rows.push_back({set.keys[i], count});
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.count != b.count ? a.count > b.count : a.key < b.key;
  });
  if (rows.size() > most) rows.resize(most);
  return rows;
}

}  // namespace cairn::server
