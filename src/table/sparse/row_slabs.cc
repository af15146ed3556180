#include "table/sparse/row_slabs.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace cairn::table {
namespace {
// A slot with few rows must not pay for a whole chunk: the first one starts at this size.
constexpr size_t kFirstBytes = 1024;

uint32_t RowsThatFit(size_t bytes, size_t row_bytes) {
  return static_cast<uint32_t>(std::max<size_t>(1, bytes / row_bytes));
}
}  // namespace

RowSlabs::RowSlabs(Arena& arena, size_t row_bytes)
    : arena_(arena),
      row_bytes_(row_bytes),
      rows_per_chunk_(RowsThatFit(Arena::kChunkBytes, row_bytes)),
      place_bits_(static_cast<uint32_t>(std::bit_width(rows_per_chunk_ - 1))),
      place_mask_((uint32_t{1} << place_bits_) - 1) {
  CAIRN_CHECK(row_bytes > 0);
}

RowSlabs::~RowSlabs() {
  for (size_t i = 0; i < chunks_.size(); ++i) {
    arena_.Give(chunks_[i], (i == 0 ? first_rows_ : rows_per_chunk_) * row_bytes_);
  }
}

uint32_t RowSlabs::Add() {
  if (count_ == capacity_) MakeRoom();
  const uint64_t chunk = count_ / rows_per_chunk_;
  // The last two numbers of all have a meaning in the index.
  CAIRN_CHECK(chunk < (uint64_t{1} << (32 - place_bits_)) - 2);
  return RowOf(count_++);
}

void RowSlabs::AddAll(std::span<const std::byte> rows) {
  CAIRN_CHECK(rows.size() % row_bytes_ == 0 && rows.size() / row_bytes_ <= kMostRows - count_);
  while (!rows.empty()) {
    if (count_ == capacity_) MakeRoom();
    const uint64_t place = count_ % rows_per_chunk_;
    const uint64_t room = std::min(capacity_ - count_, rows_per_chunk_ - place);
    const size_t bytes = std::min<uint64_t>(room * row_bytes_, rows.size());
    std::memcpy(At(RowOf(count_)), rows.data(), bytes);
    rows = rows.subspan(bytes);
    count_ += bytes / row_bytes_;
  }
}

void RowSlabs::MakeRoom() {
  if (capacity_ == 0 || first_rows_ < rows_per_chunk_) {
    const uint32_t rows = capacity_ == 0 ? std::min(RowsThatFit(kFirstBytes, row_bytes_), rows_per_chunk_)
                                         : std::min(first_rows_ * 2, rows_per_chunk_);
    std::byte* larger = arena_.Take(rows * row_bytes_);
    if (capacity_ == 0) {
      chunks_.push_back(larger);
    } else {
      std::memcpy(larger, chunks_[0], first_rows_ * row_bytes_);
      arena_.Give(chunks_[0], first_rows_ * row_bytes_);
      chunks_[0] = larger;
    }
    first_rows_ = rows;
    capacity_ = rows;
    return;
  }
  chunks_.push_back(arena_.Take(rows_per_chunk_ * row_bytes_));
  capacity_ += rows_per_chunk_;
}

uint64_t RowSlabs::memory_bytes() const {
  uint64_t bytes = sizeof(*this) + chunks_.capacity() * sizeof(chunks_[0]);
  if (chunks_.empty()) return bytes;
  return bytes + Arena::Rounded(first_rows_ * row_bytes_) +
         (chunks_.size() - 1) * Arena::Rounded(rows_per_chunk_ * row_bytes_);
}

}  // namespace cairn::table
