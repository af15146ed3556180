#include "wire/nonzero_words.h"

#include <cstring>

namespace cairn::wire {
namespace {

constexpr uint64_t kFullGap = 65535;  // no value follows it
constexpr size_t kWord = sizeof(uint32_t);

uint32_t WordAt(const std::byte* at) {
  uint32_t word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

// zeros(count of words) and value(word) in the order of the piece. Runs of zeros are skipped 64 bytes
// at a time: they are most of the array.
template <class Zeros, class Value>
void Walk(std::span<const std::byte> piece, Zeros zeros, Value value) {
  constexpr size_t kStep = 64;
  size_t at = 0;
  while (at < piece.size()) {
    size_t run = at;
    while (run + kStep <= piece.size()) {
      uint64_t lanes[kStep / 8], any = 0;
      std::memcpy(lanes, piece.data() + run, kStep);
      for (uint64_t lane : lanes) any |= lane;
      if (any != 0) break;
      run += kStep;
    }
    while (run < piece.size() && WordAt(piece.data() + run) == 0) run += kWord;
    if (run > at) zeros((run - at) / kWord);
    for (at = run; at < piece.size(); at += kWord) {
      const uint32_t word = WordAt(piece.data() + at);
      if (word == 0) break;
      value(word);
    }
  }
}

}  // namespace

void NonZeroWriter::Count(std::span<const std::byte> piece) {
  Walk(
      piece, [&](uint64_t count) { zeros_ += count; },
      [&](uint32_t) {
        gaps_ += zeros_ / kFullGap + 1;
        ++values_;
        zeros_ = 0;
      });
}

void NonZeroWriter::Begin(std::byte* to) {
  const auto count = static_cast<uint32_t>(values_);
  std::memcpy(to, &count, sizeof(count));
  gap_at_ = to + sizeof(count);
  value_at_ = gap_at_ + 2 * gaps_;
  zeros_ = 0;
}

void NonZeroWriter::Put(std::span<const std::byte> piece) {
  const auto put_gap = [&](uint64_t gap) {
    const auto bits = static_cast<uint16_t>(gap);
    std::memcpy(gap_at_, &bits, sizeof(bits));
    gap_at_ += sizeof(bits);
  };
  Walk(
      piece, [&](uint64_t count) { zeros_ += count; },
      [&](uint32_t word) {
        for (; zeros_ >= kFullGap; zeros_ -= kFullGap) put_gap(kFullGap);
        put_gap(zeros_);
        zeros_ = 0;
        std::memcpy(value_at_, &word, sizeof(word));
        value_at_ += sizeof(word);
      });
}

bool ReadNonZero(std::span<const std::byte> coded, std::span<std::byte> to) {
  if (coded.size() < sizeof(uint32_t)) return false;
  const uint64_t count = WordAt(coded.data());
  const std::span<const std::byte> rest = coded.subspan(sizeof(uint32_t));
  if (count * kWord > rest.size() || (rest.size() - count * kWord) % 2 != 0) return false;
  if (!to.empty()) std::memset(to.data(), 0, to.size());
  const std::span<const std::byte> gaps = rest.first(rest.size() - count * kWord);
  const std::byte* value = gaps.data() + gaps.size();
  const uint64_t words = to.size() / kWord;
  uint64_t at = 0, taken = 0;
  for (size_t i = 0; i < gaps.size(); i += 2) {
    uint16_t gap;
    std::memcpy(&gap, gaps.data() + i, sizeof(gap));
    at += gap;
    if (gap == kFullGap) {
      if (at > words) return false;
      continue;
    }
    if (at >= words || taken == count) return false;
    std::memcpy(to.data() + at * kWord, value, kWord);
    value += kWord;
    ++taken;
    ++at;
  }
  return taken == count;
}

}  // namespace cairn::wire
