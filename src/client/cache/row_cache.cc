#include "client/cache/row_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "base/random.h"

namespace cairn::client {
namespace {
constexpr size_t kChunk = 64;  // keys whose memory is on its way at a time
constexpr size_t kLineFloats = 16;
constexpr uint64_t kSalt = 0x5CAC4E5CAC4E5CACull;  // other bits than those that choose a slot
}  // namespace

RowCache::RowCache(const Options& options)
    : options_(options), ways_(static_cast<uint32_t>(std::min<uint64_t>(kWays, options.rows))) {
  CAIRN_CHECK(options.dim > 0);
  if (options.rows == 0) return;
  sets_.resize(options.rows / ways_);
  data_.resize(sets_.size() * ways_ * options.dim);
  door_.resize(std::bit_ceil(2 * sets_.size() * ways_ / kDoorPrints + 1));
  stats_.capacity = sets_.size() * ways_;
  stats_.bytes = sets_.size() * sizeof(Set) + data_.size() * sizeof(float) + door_.size() * sizeof(door_[0]);
}

int RowCache::Find(const Set& set, RowKey key) const {
  uint32_t equal = 0;
  for (uint32_t way = 0; way < kWays; ++way) equal |= uint32_t{set.keys[way] == key} << way;
  equal &= set.used;
  return equal == 0 ? -1 : std::countr_zero(equal);
}

// In chunks, each in three passes, so that memory is always on its way: the sets, then the rows of those
// that are found, then the copies.
size_t RowCache::Take(std::span<const RowKey> keys, std::span<float> out, std::span<int64_t> missing,
                      uint32_t ahead, Ticket* oldest) {
  CAIRN_CHECK(out.size() == keys.size() * options_.dim && missing.size() >= keys.size());
  if (oldest != nullptr) *oldest = ticket();
  if (sets_.empty() || ahead > options_.steps) return TakeNone(keys.size(), missing);
  const uint32_t most_age = options_.steps - ahead;
  uint32_t age = 0;
  const size_t dim = options_.dim, row_bytes = dim * sizeof(float);
  size_t sets[kChunk];
  const float* rows[kChunk];
  size_t left = 0;
  for (size_t begin = 0; begin < keys.size(); begin += kChunk) {
    const std::span<const RowKey> chunk = keys.subspan(begin, std::min(kChunk, keys.size() - begin));
    for (size_t i = 0; i < chunk.size(); ++i) {
      sets[i] = SetOf(Mix64(chunk[i] ^ kSalt));
      FetchSet(sets[i]);
    }
    for (size_t i = 0; i < chunk.size(); ++i) {
      rows[i] = Look(sets[i], chunk[i], most_age, &age);
      if (rows[i] == nullptr) missing[left++] = static_cast<int64_t>(begin + i);
    }
    for (size_t i = 0; i < chunk.size(); ++i) {
      if (rows[i] != nullptr) std::memcpy(out.data() + (begin + i) * dim, rows[i], row_bytes);
    }
  }
  stats_.hits += keys.size() - left;
  stats_.misses += left;
  if (oldest != nullptr) oldest->step -= age;
  return left;
}

void RowCache::FetchSet(size_t at) const {
  const auto* bytes = reinterpret_cast<const std::byte*>(&sets_[at]);
  __builtin_prefetch(bytes, 1);
  __builtin_prefetch(bytes + 64, 1);
}

// The row of this key if it is not older than that, on its way to the cache; null otherwise. *age: the
// largest of all that were found.
const float* RowCache::Look(size_t at, RowKey key, uint32_t most_age, uint32_t* age) {
  Set& set = sets_[at];
  const int way = Find(set, key);
  if (way < 0 || step_ - set.read[way] > most_age) return nullptr;
  *age = std::max(*age, step_ - set.read[way]);
  set.referenced |= static_cast<uint8_t>(1u << way);
  const float* row = RowAt(at, static_cast<uint32_t>(way));
  for (size_t d = 0; d < options_.dim; d += kLineFloats) __builtin_prefetch(row + d);
  return row;
}

size_t RowCache::TakeNone(size_t count, std::span<int64_t> missing) {
  std::iota(missing.begin(), missing.begin() + static_cast<ptrdiff_t>(count), int64_t{0});
  stats_.misses += count;
  return count;
}

void RowCache::Give(Ticket ticket, std::span<const RowKey> keys, std::span<const int64_t> missing,
                    std::span<const float> rows, std::span<float> out) {
  const size_t dim = options_.dim;
  CAIRN_CHECK(rows.size() == missing.size() * dim && out.size() == keys.size() * dim);
  const bool keep = Fresh(ticket) && !sets_.empty();
  for (size_t begin = 0; begin < missing.size(); begin += kChunk) {
    const size_t end = std::min(begin + kChunk, missing.size());
    for (size_t i = begin; i < end; ++i) {
      CAIRN_CHECK(static_cast<uint64_t>(missing[i]) < keys.size());
      if (!keep) continue;
      const uint64_t mix = Mix64(keys[static_cast<size_t>(missing[i])] ^ kSalt);
      FetchSet(SetOf(mix));
      __builtin_prefetch(&door_[mix & (door_.size() - 1)], 1);
    }
    for (size_t i = begin; i < end; ++i) {
      const float* row = rows.data() + i * dim;
      std::memcpy(out.data() + static_cast<size_t>(missing[i]) * dim, row, dim * sizeof(float));
      if (keep) Keep(keys[static_cast<size_t>(missing[i])], ticket.step, row);
    }
  }
}

void RowCache::Keep(RowKey key, uint32_t step, const float* row) {
  const uint64_t mix = Mix64(key ^ kSalt);
  const size_t at = SetOf(mix);
  Set& set = sets_[at];
  int way = Find(set, key);
  if (way >= 0) {
    if (set.read[way] > step) return;  // a later read has ended before this one
  } else {
    if (!KnownAtTheDoor(mix)) return;
    way = static_cast<int>(Victim(set));
    const uint8_t bit = static_cast<uint8_t>(1u << way);
    stats_.evicted += (set.used & bit) != 0;
    stats_.rows += (set.used & bit) == 0;
    ++stats_.admitted;
    set.used |= bit;
    set.referenced &= static_cast<uint8_t>(~bit);
    set.keys[way] = key;
  }
  set.read[way] = step;
  std::memcpy(RowAt(at, static_cast<uint32_t>(way)), row, options_.dim * sizeof(float));
}

// The upper bits of the mix chose the set; the lower ones are the place and the fingerprint. A place
// remembers the last few keys: with one cell, two hot keys that share it would oust each other for ever.
bool RowCache::KnownAtTheDoor(uint64_t mix) {
  const uint32_t print = static_cast<uint32_t>(mix >> 20) | 1u;
  std::array<uint32_t, kDoorPrints>& prints = door_[mix & (door_.size() - 1)];
  for (uint32_t& known : prints) {
    if (known != print) continue;
    known = 0;
    return true;
  }
  std::shift_right(prints.begin(), prints.end(), 1);
  prints[0] = print;
  return false;
}

uint32_t RowCache::Victim(Set& set) {
  for (uint32_t way = 0; way < ways_; ++way) {
    if ((set.used >> way & 1) == 0) return way;
  }
  for (uint32_t way = 0; way < ways_; ++way) {
    if (Expired(set.read[way])) return way;
  }
  // One that was not served since all of the set were last forgiven; the hand makes them take turns.
  for (bool forgiven = false;; forgiven = true) {
    for (uint32_t looked = 0; looked < ways_; ++looked) {
      const uint32_t way = set.hand;
      set.hand = static_cast<uint8_t>((way + 1) % ways_);
      if ((set.referenced >> way & 1) == 0) return way;
    }
    CAIRN_CHECK(!forgiven);
    set.referenced = 0;
  }
}

void RowCache::Step() {
  if (++step_ == 0) Clear();  // a row of four thousand million steps ago must not look new
}

void RowCache::Clear() {
  ++generation_;
  for (Set& set : sets_) set.used = set.referenced = 0;
  stats_.rows = 0;
}

RowCache::Stats RowCache::stats() const { return stats_; }

}  // namespace cairn::client
