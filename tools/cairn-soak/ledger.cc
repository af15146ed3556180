#include "ledger.h"

#include <algorithm>

#include "base/random.h"

namespace soak {
namespace {
constexpr size_t kMaxFindings = 20;
int64_t WrapAdd(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
}  // namespace

Entry UpdateOf(uint64_t number) {
  return {1, static_cast<int64_t>(number), static_cast<int64_t>(number * number),
          static_cast<int64_t>(cairn::Mix64(number))};
}

std::vector<cairn::RowKey> KeysOf(uint32_t rank, uint32_t life, uint32_t count) {
  std::vector<cairn::RowKey> keys(count);
  for (uint32_t i = 0; i < count; ++i)
    keys[i] = cairn::Mix64(uint64_t{rank} << 40 | uint64_t{life} << 32 | (i + 1));
  return keys;
}

Prefix::Prefix(uint64_t submitted) : sums_(submitted + 1, Entry{}) {
  for (uint64_t n = 1; n <= submitted; ++n) {
    const Entry update = UpdateOf(n);
    for (size_t i = 0; i < update.size(); ++i) sums_[n][i] = WrapAdd(sums_[n - 1][i], update[i]);
  }
}

void Prefix::Check(std::span<const int64_t> place, const Counts& counts, const std::string& name,
                   Verdict* verdict) const {
  const int64_t applied = place[0];
  const auto say = [&](const std::string& what) {
    if (verdict->findings.size() < kMaxFindings)
      verdict->findings.push_back(name + ": " + what + " (applied " + std::to_string(applied) +
                                  ", acknowledged " + std::to_string(counts.acknowledged) + ", submitted " +
                                  std::to_string(counts.submitted) + ")");
  };
  if (applied < 0 || static_cast<uint64_t>(applied) > counts.submitted) {
    ++verdict->twice;
    return say("more updates than were sent");
  }
  if (static_cast<uint64_t>(applied) < counts.acknowledged) {
    verdict->lost += counts.acknowledged - static_cast<uint64_t>(applied);
    return say("acknowledged updates are missing");
  }
  if (!std::equal(place.begin(), place.end(), sums_[static_cast<uint64_t>(applied)].begin())) {
    // The number is right and the sums are not: one is missing and another was applied twice.
    ++verdict->lost;
    ++verdict->twice;
    say("not a prefix of what was sent");
  }
}

}  // namespace soak
