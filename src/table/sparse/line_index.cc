#include "table/sparse/line_index.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace cairn::table {
namespace {
// Up to here a segment doubles: growth by an eighth would allocate too often.
constexpr uint32_t kSmallLines = 64;
// The smallest piece of the arena has room for 16 lines; fewer are the jitter.
constexpr uint32_t kFirstLines = 12;
constexpr uint32_t kFirstJitter = 5;
// 64 Ki segments of 64 Ki keys: more than a slot has row numbers. Keys chosen to share more bits
// of the mix than that make large segments instead of a large directory.
constexpr uint32_t kMaxDepth = 16;
}  // namespace

LineIndex::LineIndex(Arena& arena, uint64_t seed) : arena_(arena), seed_(Mix64(seed, 0x11DE)) {
  segments_.push_back(std::make_unique<Segment>());
  directory_.push_back(segments_[0].get());
}

LineIndex::~LineIndex() {
  for (auto& segment : segments_) GiveLines(*segment);
}

// A size near lines * 1.125, somewhere between 17/16 and 19/16 of it.
uint32_t LineIndex::Jittered(uint32_t lines) const {
  return lines + lines / 16 + static_cast<uint32_t>(Mix64(seed_, lines) % (lines / 8 + 1));
}

void LineIndex::Reserve(uint64_t keys) {
  CAIRN_CHECK(size_ == 0);
  uint64_t lines = 0;
  for (const auto& segment : segments_) lines += segment->lines;
  if (keys <= lines * 4 || keys <= kSmallLines * 4) return;
  for (auto& segment : segments_) GiveLines(*segment);
  segments_.clear();
  directory_.clear();
  // A segment gets three quarters of what it may have: chance fills some more than others.
  for (depth_ = 0; depth_ < kMaxDepth && keys >> depth_ > kSegmentKeys / 4 * 3;) ++depth_;
  const auto share = static_cast<uint32_t>((keys >> depth_) / 4);
  for (uint32_t i = 0; i < uint32_t{1} << depth_; ++i) {
    segments_.push_back(std::make_unique<Segment>());
    directory_.push_back(segments_.back().get());
    segments_.back()->depth = depth_;
    TakeLines(*segments_.back(), Jittered(std::max(kFirstLines, share + i % 8)));
  }
}

void LineIndex::TakeLines(Segment& segment, uint32_t lines) {
  segment.lines = lines;
  segment.chunks.clear();
  for (uint32_t begin = 0; begin < lines; begin += kChunkLines) {
    const uint32_t count = std::min(kChunkLines, lines - begin);
    Line* chunk = reinterpret_cast<Line*>(arena_.Take(count * sizeof(Line)));
    for (uint32_t i = 0; i < count; ++i) chunk[i].meta = 0;
    segment.chunks.push_back(chunk);
  }
}

void LineIndex::GiveLines(Segment& segment) {
  for (size_t c = 0; c < segment.chunks.size(); ++c) {
    const size_t count = std::min<size_t>(kChunkLines, segment.lines - c * kChunkLines);
    arena_.Give(reinterpret_cast<std::byte*>(segment.chunks[c]), count * sizeof(Line));
  }
  segment.chunks.clear();
  segment.lines = 0;
}

uint32_t LineIndex::Find(RowKey key, uint64_t hash) const {
  if (size_ == 0) return kNoRow;
  const Segment& segment = SegmentOf(hash);
  for (uint32_t at = segment.Home(hash);; at = segment.After(at)) {
    const Line& line = segment.At(at);
    const uint32_t row = line.RowOf(key);
    if (row != kNoRow || !line.overflowed()) return row;
  }
}

void LineIndex::Insert(RowKey key, uint64_t hash, uint32_t row) {
  Segment* segment = &SegmentOf(hash);
  if (segment->Full()) {
    if (segment->keys >= kSegmentKeys && segment->depth < kMaxDepth) {
      Split(*segment, hash);
      segment = &SegmentOf(hash);
      if (segment->Full()) Grow(*segment);  // all keys went to one half: chosen, not by chance
    } else {
      Grow(*segment);
    }
  }
  Place(*segment, key, hash, row);
  ++segment->keys;
  ++size_;
}

void LineIndex::Place(Segment& segment, RowKey key, uint64_t hash, uint32_t row) {
  uint32_t at = segment.Home(hash);
  for (;;) {
    Line& line = segment.At(at);
    const uint32_t count = line.count();
    if (count < kKeysOfLine) {
      line.keys[count] = key;
      line.rows[count] = row;
      ++line.meta;
      return;
    }
    line.meta |= kOverflowed;
    at = segment.After(at);
  }
}

// The order of lines is the order of hashes, so both sides of the move are read and written
// nearly in sequence.
void LineIndex::Grow(Segment& segment) {
  uint32_t lines = segment.lines < kSmallLines ? segment.lines * 2 : Jittered(segment.lines);
  if (segment.lines == 0) lines = kFirstLines + static_cast<uint32_t>(seed_ % kFirstJitter);
  Segment old = std::exchange(segment, {});
  segment.depth = old.depth;
  segment.keys = old.keys;
  TakeLines(segment, lines);
  for (uint32_t i = 0; i < old.lines; ++i) {
    const Line& line = old.At(i);
    for (uint32_t j = 0; j < line.count(); ++j)
      Place(segment, line.keys[j], HashOf(line.keys[j]), line.rows[j]);
  }
  GiveLines(old);
}

// Two segments instead of the one that `hash` belongs to.
void LineIndex::Split(Segment& segment, uint64_t hash) {
  if (segment.depth == depth_) {
    std::vector<Segment*> wider(directory_.size() * 2);
    for (size_t i = 0; i < wider.size(); ++i) wider[i] = directory_[i / 2];
    directory_ = std::move(wider);
    ++depth_;
  }
  Segment old = std::exchange(segment, {});
  const auto upper = [&old](uint64_t h) { return ((h << old.depth) >> 63) != 0; };
  auto added = std::make_unique<Segment>();
  Segment* halves[2] = {&segment, added.get()};
  for (Segment* half : halves) {
    half->keys = 0;
    half->depth = old.depth + 1;
  }
  for (uint32_t i = 0; i < old.lines; ++i) {
    const Line& line = old.At(i);
    for (uint32_t j = 0; j < line.count(); ++j) ++halves[upper(HashOf(line.keys[j]))]->keys;
  }
  for (Segment* half : halves) {
    TakeLines(*half, Jittered(std::max(kFirstLines, static_cast<uint32_t>(half->keys / 4))));
  }
  for (uint32_t i = 0; i < old.lines; ++i) {
    const Line& line = old.At(i);
    for (uint32_t j = 0; j < line.count(); ++j) {
      const uint64_t h = HashOf(line.keys[j]);
      Place(*halves[upper(h)], line.keys[j], h, line.rows[j]);
    }
  }
  GiveLines(old);
  // The directory entries of the old segment are a run; its upper half is the new one's.
  const size_t run = size_t{1} << (depth_ - old.depth);
  const size_t begin = DirectoryOf(hash) / run * run;
  for (size_t i = begin + run / 2; i < begin + run; ++i) directory_[i] = added.get();
  segments_.push_back(std::move(added));
}

void LineIndex::Clear(std::span<const RowKey> keys) {
  CAIRN_CHECK(keys.size() == size_);
  uint64_t lines = 0;
  for (const auto& segment : segments_) lines += segment->lines;
  if (keys.size() < lines / 8) {
    // Every line in use lies on the way of some key, and a way once cleared is cleared to its end.
    for (RowKey key : keys) {
      const uint64_t hash = HashOf(key);
      Segment& segment = SegmentOf(hash);
      for (uint32_t at = segment.Home(hash); std::exchange(segment.At(at).meta, 0) & kOverflowed;) {
        at = segment.After(at);
      }
    }
  } else {
    for (const auto& segment : segments_) {
      for (uint32_t i = 0; i < segment->lines; ++i) segment->At(i).meta = 0;
    }
  }
  for (const auto& segment : segments_) segment->keys = 0;
  size_ = 0;
}

uint64_t LineIndex::memory_bytes() const {
  uint64_t bytes = sizeof(*this) + directory_.capacity() * sizeof(directory_[0]) +
                   segments_.capacity() * sizeof(segments_[0]);
  for (const auto& segment : segments_) {
    bytes += sizeof(Segment) + segment->chunks.capacity() * sizeof(Line*);
    for (uint32_t begin = 0; begin < segment->lines; begin += kChunkLines) {
      bytes += Arena::Rounded(std::min(kChunkLines, segment->lines - begin) * sizeof(Line));
    }
  }
  return bytes;
}

}  // namespace cairn::table
