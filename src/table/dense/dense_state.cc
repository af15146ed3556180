#include "table/dense/dense_state.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace cairn::table {
namespace {

// Values begin at their piece's start and staging 5 cache lines after it: arrays with equal low
// address bits get in each other's way in the cache, so each of these has another odd number.
constexpr size_t kOffsets[optimizer::kMaxStateColumns] = {7 * 64, 11 * 64, 13 * 64};

}  // namespace

DenseState::DenseState(Arena& arena, std::span<const float> initial, size_t elements)
    : arena_(arena), columns_(static_cast<uint32_t>(initial.size())), elements_(elements) {
  CAIRN_CHECK(initial.size() <= optimizer::kMaxStateColumns);
  std::ranges::copy(initial, initial_);
}

DenseState::~DenseState() {
  for (uint32_t c = 0; c < columns_; ++c) {
    if (arrays_[c] != nullptr)
      arena_.Give(reinterpret_cast<std::byte*>(arrays_[c]) - kOffsets[c], PieceBytes(c));
  }
}

size_t DenseState::PieceBytes(uint32_t column) const { return elements_ * sizeof(float) + kOffsets[column]; }

void DenseState::Make() {
  if (made_) return;
  MakeUnfilled();
  for (uint32_t c = 0; c < columns_; ++c) std::fill_n(arrays_[c], elements_, initial_[c]);
}

void DenseState::MakeUnfilled() {
  if (made_) return;
  CAIRN_CHECK(elements_ > 0);
  for (uint32_t c = 0; c < columns_; ++c)
    arrays_[c] = reinterpret_cast<float*>(arena_.Take(PieceBytes(c)) + kOffsets[c]);
  made_ = true;
}

void DenseState::Read(uint8_t column, float* out) const {
  CAIRN_CHECK(column >= 1 && column <= columns_);
  if (made_) {
    std::memcpy(out, arrays_[column - 1], elements_ * sizeof(float));
  } else {
    std::fill_n(out, elements_, initial_[column - 1]);
  }
}

uint64_t DenseState::Hash(uint64_t seed) const {
  float same[1024];  // in pieces, so that state that is not made needs no array
  for (uint32_t c = 0; c < columns_; ++c) {
    std::fill_n(same, std::size(same), initial_[c]);
    for (size_t at = 0; at < elements_; at += std::size(same)) {
      const size_t count = std::min(std::size(same), elements_ - at);
      seed = XXH3_64bits_withSeed(made_ ? arrays_[c] + at : same, count * sizeof(float), seed);
    }
  }
  return seed;
}

uint64_t DenseState::memory_bytes() const {
  uint64_t bytes = 0;
  for (uint32_t c = 0; c < columns_ && made_; ++c) bytes += Arena::Rounded(PieceBytes(c));
  return bytes;
}

}  // namespace cairn::table
