#include "client/partition/error_feedback.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/planted.h"
#include "client/partition/finite.h"

namespace cairn::client {
namespace {

uint32_t Magnitude(float value) { return std::bit_cast<uint32_t>(value) & 0x7FFFFFFFu; }

bool InMask(std::span<const std::byte> mask, size_t segment) {
  return mask.empty() || (std::to_integer<unsigned>(mask[segment / 8]) >> (segment % 8) & 1) != 0;
}

}  // namespace

// Digit by digit from the top: each pass counts the digits of those that agree so far.
uint32_t LargestMagnitude(std::span<const float> values, size_t k) {
  constexpr struct {
    int shift, bits;
  } kDigits[] = {{20, 11}, {10, 10}, {0, 10}};
  uint32_t found = 0, known = 0;  // the digits found, and where they stand
  for (const auto& digit : kDigits) {
    std::array<size_t, 2048> counts{};
    const uint32_t mask = (1u << digit.bits) - 1;
    for (float value : values) {
      const uint32_t bits = Magnitude(value);
      if ((bits & known) == found) ++counts[bits >> digit.shift & mask];
    }
    uint32_t d = mask;
    for (; d > 0 && counts[d] < k; --d) k -= counts[d];
    found |= d << digit.shift;
    known |= mask << digit.shift;
  }
  return found;
}

std::shared_ptr<ErrorFeedback> ErrorFeedback::For(const TableSpec& spec) {
  if (spec.wire != WireFormat::kTopK || spec.kind != TableKind::kDense) return nullptr;
  return std::shared_ptr<ErrorFeedback>(new ErrorFeedback(spec));
}

ErrorFeedback::ErrorFeedback(const TableSpec& spec)
    : ends_(spec.segments.empty() ? std::vector<uint64_t>{spec.size} : spec.segments),
      fraction_(spec.wire_topk) {}

std::span<const std::byte> ErrorFeedback::Chosen::values() const {
  feedback_->mutex_.AssertHeld();
  return std::as_bytes(std::span(feedback_->sent_));
}

void ErrorFeedback::Chosen::KeepRest() {
  if (feedback_ == nullptr) return;
  feedback_->mutex_.AssertHeld();
  feedback_->rest_.swap(feedback_->next_);
  Release();
}

ErrorFeedback::Chosen ErrorFeedback::Choose(const PieceList<const std::byte>& gradient,
                                            std::span<const std::byte> mask, double value_scale) {
  const uint64_t size = ends_.back();
  const bool fits = gradient.bytes() == size * sizeof(float) &&
                    (mask.empty() || mask.size() * 8 >= ends_.size()) && std::isfinite(value_scale) &&
                    value_scale != 0;
  if (!fits) return {};
  Chosen chosen(*this);
  mutex_.AssertHeld();
  rest_.resize(size);
  next_.resize(size);
  sent_.assign(size, 0.0f);
  const auto scale = static_cast<float>(value_scale);
  uint64_t begin = 0;
  for (size_t segment = 0; segment < ends_.size(); begin = ends_[segment++]) {
    const uint64_t end = ends_[segment];
    if (!InMask(mask, segment)) {
      std::copy(rest_.begin() + static_cast<ptrdiff_t>(begin), rest_.begin() + static_cast<ptrdiff_t>(end),
                next_.begin() + static_cast<ptrdiff_t>(begin));
      continue;
    }
    if (!Add(gradient, begin, end, 1.0f / scale)) return {};
    Split(begin, end);
    if (scale != 1.0f && !CAIRN_BUG(kRestScaled))
      for (uint64_t i = begin; i < end; ++i) next_[i] *= scale;
  }
  if (CAIRN_BUG(kRestForgotten)) rest_.assign(size, 0.0f);  // a push that goes well replaces it
  return chosen;
}

bool ErrorFeedback::Add(const PieceList<const std::byte>& gradient, uint64_t begin, uint64_t end,
                        float per_value) {
  float* sum = next_.data() + begin;
  const float* rest = rest_.data() + begin;
  bool whole = true;
  if (CAIRN_BUG(kRestTwice)) per_value *= 2;
  gradient.ForEach(begin * sizeof(float), (end - begin) * sizeof(float),
                   [&](std::span<const std::byte> piece) {
                     whole &= piece.size() % sizeof(float) == 0;
                     const size_t count = piece.size() / sizeof(float);
                     if (piece.data() == nullptr) {
                       std::memset(sum, 0, count * sizeof(float));
                     } else {
                       std::memcpy(sum, piece.data(), count * sizeof(float));
                     }
                     for (size_t i = 0; i < count; ++i) sum[i] += rest[i] * per_value;
                     sum += count;
                     rest += count;
                   });
  return whole && AllFinite(std::as_bytes(std::span(next_)).subspan(begin * 4, (end - begin) * 4));
}

void ErrorFeedback::Split(uint64_t begin, uint64_t end) {
  const std::span<float> sums = std::span(next_).subspan(begin, end - begin);
  const std::span<float> sent = std::span(sent_).subspan(begin, end - begin);
  const float wanted = std::ceil(fraction_ * static_cast<float>(sums.size()));  // 0.4 · 5 is 2
  const size_t k = std::clamp<size_t>(static_cast<size_t>(wanted), 1, sums.size());
  const uint32_t least = LargestMagnitude(sums, k);
  size_t larger = 0;
  for (float sum : sums) larger += Magnitude(sum) > least;
  size_t equal = k - larger;  // of those as large as the last one, the first
  for (size_t i = 0; i < sums.size(); ++i) {
    const uint32_t magnitude = Magnitude(sums[i]);
    if (magnitude < least || (magnitude == least && equal == 0)) continue;
    if (magnitude == least) --equal;
    sent[i] = std::exchange(sums[i], 0.0f);
  }
}

}  // namespace cairn::client
