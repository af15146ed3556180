#include "client/partition/split_frame.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"
#include "wire/data.h"

namespace cairn::client {
namespace {

// Walks through pieces and hands out the next bytes of them.
template <class Byte>
class Cursor {
 public:
  explicit Cursor(std::span<const std::span<Byte>> pieces) : pieces_(pieces) {}
  static uint64_t Bytes(std::span<const std::span<Byte>> pieces) {
    uint64_t sum = 0;
    for (std::span<Byte> piece : pieces) sum += piece.size();
    return sum;
  }
  void Take(uint64_t bytes, RecycledVector<std::span<Byte>>& out) {
    while (bytes > 0) {
      CAIRN_CHECK(next_ < pieces_.size());
      const std::span<Byte> piece = pieces_[next_];
      const uint64_t part = std::min<uint64_t>(bytes, piece.size() - at_);
      // A span without memory has only a size.
      if (part > 0) Append(out, {piece.data() == nullptr ? nullptr : piece.data() + at_, part});
      bytes -= part;
      at_ += part;
      if (at_ == piece.size()) ++next_, at_ = 0;
    }
  }

 private:
  static void Append(RecycledVector<std::span<Byte>>& out, std::span<Byte> piece) {
    if (!out.empty() && piece.data() != nullptr && out.back().data() != nullptr &&
        out.back().data() + out.back().size() == piece.data()) {
      out.back() = {out.back().data(), out.back().size() + piece.size()};
    } else {
      out.push_back(piece);
    }
  }
  std::span<const std::span<Byte>> pieces_;
  size_t next_ = 0;
  uint64_t at_ = 0;
};

// What lies before the values, decoded.
struct Head {
  wire::PushView push;  // of a pull: entries and keys
  bool has_params = false;
};
Head HeadOf(const wire::Frame& frame) {
  wire::FrameHeader header = frame.header();
  const auto body = frame.head.bytes().subspan(sizeof(wire::FrameHeader));
  header.body_bytes = static_cast<uint32_t>(body.size());
  Head head;
  if (header.type == wire::FrameType::kPull) {
    const Result<wire::PullView> pull = wire::DecodePull(header, body);
    CAIRN_CHECK(pull.ok());  // our own encoder made it
    head.push.entries = pull->entries;
    head.push.keys = pull->keys;
  } else {
    const Result<wire::PushView> push = wire::DecodePush(header, body);
    CAIRN_CHECK(push.ok());
    head.push = *push;
    head.has_params = true;
  }
  return head;
}

// One owner's share in the making.
struct Share {
  ShardPart part;
  StateVersion stamp;
  std::vector<wire::SlotEntry> entries;
  std::vector<uint64_t> keys;
  wire::Pieces values;
};

Share& ShareOf(std::vector<Share>& shares, const wire::SlotOwner& owner) {
  for (Share& share : shares) {
    if (share.part.server == owner.server && share.part.thread == owner.thread) return share;
  }
  Share& share = shares.emplace_back();
  share.part.server = owner.server;
  share.part.thread = owner.thread;
  return share;
}

// `kept` lives as long as `frame` does.
wire::FramePtr Keeping(wire::FramePtr frame, wire::FramePtr kept) {
  struct Both {
    wire::FramePtr frame, kept;
  };
  wire::Frame* const raw = frame.get();
  return wire::FramePtr(std::make_shared<Both>(Both{std::move(frame), std::move(kept)}), raw);
}

wire::FramePtr Encode(Share& share, const Head& head, const wire::FrameHeader& header, bool first,
                      BufferPool& pool) {
  wire::DataParts parts;
  parts.type = header.type;
  parts.flags = header.flags & static_cast<uint16_t>(~wire::kFlagValuesChecked);  // sealed later
  if (!first) parts.flags &= static_cast<uint16_t>(~wire::kFlagTrip);
  parts.incarnation = Incarnation{header.incarnation};
  parts.state_version = std::max(StateVersion{header.state_version}, share.stamp);
  parts.round = Round{header.round};
  parts.table = TableId{header.table};
  if (head.has_params) parts.params = &head.push.params;
  parts.entries = share.entries;
  parts.done_bitmap = head.push.done_bitmap;
  parts.mask = head.push.mask;
  parts.keys = share.keys;
  parts.values = std::move(share.values);
  return wire::EncodeData(std::move(parts), pool);
}

// Rows of the whole reply → the shares that have them, and their rows there.
void CutRepeats(const ShardPart& whole, std::span<const wire::SlotEntry> entries,
                const wire::ClusterState& state, std::vector<Share>& shares) {
  if (whole.repeats.empty()) return;
  struct Range {
    uint32_t first = 0;     // row of the whole reply
    uint32_t first_in = 0;  // row of the share's
    Share* share = nullptr;
  };
  std::vector<Range> ranges;
  std::vector<uint32_t> rows(shares.size());
  uint32_t row = 0;
  for (const wire::SlotEntry& entry : entries) {
    Share& share = ShareOf(shares, state.slots[entry.slot]);
    uint32_t& in_share = rows[static_cast<size_t>(&share - shares.data())];
    ranges.push_back({row, in_share, &share});
    row += entry.count;
    in_share += entry.count;
  }
  for (const ShardPart::Repeat& repeat : whole.repeats) {
    auto it = std::upper_bound(ranges.begin(), ranges.end(), repeat.from,
                               [](uint32_t r, const Range& range) { return r < range.first; });
    const Range& range = *std::prev(it);
    range.share->part.repeats.push_back({range.first_in + repeat.from - range.first, repeat.to});
  }
}

}  // namespace

FrameHome HomeOf(wire::Frame& frame, const wire::ClusterState& state) {
  const std::span<const wire::SlotEntry> entries = wire::MutableEntries(frame);
  CAIRN_CHECK(!entries.empty());
  const wire::SlotOwner& first = state.slots[entries.front().slot];
  FrameHome home{true, first.server, first.thread, first.since};
  for (const wire::SlotEntry& entry : entries) {
    const wire::SlotOwner& owner = state.slots[entry.slot];
    home.one &= owner.server == first.server && owner.thread == first.thread;
    home.stamp = std::max(home.stamp, owner.since);
  }
  return home;
}

std::vector<ShardPart> CutBySlot(const wire::FramePtr& frame, const ShardPart& whole,
                                 const wire::ClusterState& state, BufferPool& pool) {
  const Head head = HeadOf(*frame);
  const std::span<const wire::SlotEntry> entries = head.push.entries;
  uint64_t units = 0;  // elements or rows: all of them have as many bytes
  for (const wire::SlotEntry& entry : entries) units += entry.count;
  const auto unit_of = [&](uint64_t bytes) {
    CAIRN_CHECK(bytes == 0 || (units > 0 && bytes % units == 0));
    return bytes == 0 ? 0 : bytes / units;
  };
  using Sent = Cursor<const std::byte>;
  using Wanted = Cursor<std::byte>;
  Sent values(frame->values);
  Wanted into(whole.into);
  const uint64_t value_bytes = unit_of(Sent::Bytes(frame->values));
  const uint64_t into_bytes = unit_of(Wanted::Bytes(whole.into));
  CAIRN_CHECK(whole.rows.empty() || whole.rows.size() == units);

  std::vector<Share> shares;
  uint64_t at = 0;
  for (const wire::SlotEntry& entry : entries) {
    const wire::SlotOwner& owner = state.slots[entry.slot];
    Share& share = ShareOf(shares, owner);
    share.stamp = std::max(share.stamp, owner.since);
    share.entries.push_back(entry);
    if (!head.push.keys.empty()) {
      const auto keys = head.push.keys.subspan(at, entry.count);
      share.keys.insert(share.keys.end(), keys.begin(), keys.end());
    }
    values.Take(entry.count * value_bytes, share.values);
    into.Take(entry.count * into_bytes, share.part.into);
    if (!whole.rows.empty()) {
      const auto rows = std::span<const uint32_t>(whole.rows).subspan(at, entry.count);
      share.part.rows.insert(share.part.rows.end(), rows.begin(), rows.end());
    }
    at += entry.count;
  }
  CutRepeats(whole, entries, state, shares);

  std::vector<ShardPart> parts;
  parts.reserve(shares.size());
  for (Share& share : shares) {
    share.part.out = whole.out;
    share.part.row_bytes = whole.row_bytes;
    share.part.keys = whole.keys;
    share.part.borrowed = whole.borrowed;
    const bool keeps = !whole.borrowed && !share.values.empty();
    share.part.frame = Encode(share, head, frame->header(), parts.empty(), pool);
    share.part.frame->coding = frame->coding;
    if (keeps) share.part.frame = Keeping(std::move(share.part.frame), frame);
    parts.push_back(std::move(share.part));
  }
  return parts;
}

wire::FramePtr WithOwnHead(const wire::FramePtr& frame, bool borrowed, BufferPool& pool) {
  auto copy = std::make_shared<wire::Frame>();
  copy->head = pool.Get(frame->head.size());
  std::memcpy(copy->head.data(), frame->head.data(), frame->head.size());
  copy->values = frame->values;
  copy->coding = frame->coding;
  const bool keeps = !borrowed && !copy->values.empty();
  return keeps ? Keeping(std::move(copy), frame) : copy;
}

}  // namespace cairn::client
