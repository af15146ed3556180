#include "table/memory/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>

#include "base/check.h"
#include "table/memory/page_supply.h"

namespace cairn::table {
namespace {
constexpr size_t kSmallestPiece = 1024;
constexpr size_t kHugePage = PageSupply::kPageBytes;
// The first mapping is small and of ordinary pages: a cluster of many nearly empty shards (a
// simulation, a notebook) must not pay 2 MiB for each. So are those in the place of a page that is
// not ready yet.
constexpr size_t kFirstMapping = 256 * 1024;
constexpr size_t kLargestMapping = size_t{32} << 20;
// Larger pieces have mappings of their own, which go back to the system.
constexpr size_t kLargestPiece = size_t{1} << 20;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

std::byte* MapPages(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(p);
}

}  // namespace

size_t Arena::Rounded(size_t bytes) {
  if (bytes <= kSmallestPiece) return kSmallestPiece;
  if (bytes > kLargestPiece) return RoundUp(bytes, bytes > 8 * kHugePage ? kHugePage : 4096);
  return RoundUp(bytes, std::bit_floor(bytes - 1) / 4);
}

Arena::~Arena() {
  CAIRN_CHECK(used_bytes_ == 0);
  for (const Mapping& m : mappings_) munmap(m.base, m.bytes);
}

std::byte* Arena::Take(size_t bytes) {
  CAIRN_CHECK(bytes > 0);
  const size_t rounded = Rounded(bytes);
  std::byte* piece;
  if (rounded > kLargestPiece) {
    piece = MapHugePages(rounded);
    mapped_bytes_ += rounded;
  } else if (auto list = free_.find(rounded); list != free_.end() && !list->second.empty()) {
    piece = list->second.back();
    list->second.pop_back();
  } else {
    piece = Cut(rounded);
  }
  used_bytes_ += rounded;
  return piece;
}

void Arena::Give(std::byte* piece, size_t bytes) {
  const size_t rounded = Rounded(bytes);
  CAIRN_CHECK(piece != nullptr && used_bytes_ >= rounded);
  used_bytes_ -= rounded;
  if (rounded > kLargestPiece) {
    munmap(piece, rounded);
    mapped_bytes_ -= rounded;
  } else {
    free_[rounded].push_back(piece);
  }
}

std::byte* Arena::Cut(size_t rounded) {
  if (left_ < rounded) {
    KeepRest();
    const Mapping mapping = NextMapping(rounded);
    mappings_.push_back(mapping);
    mapped_bytes_ += mapping.bytes;
    next_ = mapping.base;
    left_ = mapping.bytes;
  }
  std::byte* piece = next_;
  next_ += rounded;
  left_ -= rounded;
  return piece;
}

Arena::Mapping Arena::NextMapping(size_t rounded) {
  size_t bytes = kFirstMapping;
  if (pages_ != nullptr && !mappings_.empty()) {
    static_assert(kLargestPiece <= kHugePage);
    if (std::byte* const page = pages_->Take(); page != nullptr) return {page, kHugePage};
  } else if (!mappings_.empty()) {
    bytes = std::clamp(mappings_.back().bytes * 2, kHugePage, kLargestMapping);
  }
  bytes = std::max(bytes, RoundUp(rounded, kFirstMapping));
  return {bytes % kHugePage == 0 ? MapHugePages(bytes) : MapPages(bytes), bytes};
}

// The rest of a mapping that is too small for the next piece becomes free pieces.
void Arena::KeepRest() {
  while (left_ >= kSmallestPiece) {
    size_t piece = std::min(std::bit_floor(left_), kChunkBytes);
    free_[piece].push_back(next_);
    next_ += piece;
    left_ -= piece;
  }
  next_ = nullptr;
  left_ = 0;
}

}  // namespace cairn::table
