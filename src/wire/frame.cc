// Headers, checksums, whole frames. What the bodies mean is in data_*.cc and control_*.cc.
#include "wire/frame.h"

#define XXH_STATIC_LINKING_ONLY  // XXH3_state_t on the stack
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/copy_bytes.h"
#include "wire/body_layout.h"

namespace cairn::wire {
namespace {

uint16_t AllowedFlags(FrameType type) {
  switch (type) {
    case FrameType::kPush: return kFlagValuesChecked | kFlagTrip | kFlagCoded;
    case FrameType::kContribute:
    case FrameType::kDone: return kFlagDone | kFlagPullAfter | kFlagValuesChecked | kFlagTrip | kFlagCoded;
    case FrameType::kRoundReply:
      return kFlagPullAfter | kFlagValuesChecked | kFlagRefused | kFlagReport | kFlagAllJoined | kFlagCoded;
    case FrameType::kPull: return kFlagSyncPull | kFlagValuesChecked | kFlagAssigned | kFlagTrip | kFlagCoded;
    case FrameType::kPullReply: return kFlagValuesChecked | kFlagCoded;
    case FrameType::kReplicate: return kFlagValuesChecked | kFlagBodyUnchecked;
    case FrameType::kClock: return kFlagDone | kFlagValuesChecked | kFlagTrip;
    default: return kFlagValuesChecked;
  }
}

bool MayHaveEntries(FrameType type) {
  return type != FrameType::kControl && type != FrameType::kError && type != FrameType::kReplicate &&
         type < FrameType::kClock;
}

uint32_t MostBodyBytes(FrameType type) {
  if (type == FrameType::kControl) return kMaxControlBytes;
  if (type >= FrameType::kClock) return 0;
  return type == FrameType::kReplicate ? kMaxBodyBytes + kOpRoom : kMaxBodyBytes;
}

bool MayHaveKeys(FrameType type) { return HasParams(type) || type == FrameType::kPull; }

uint64_t ChecksumOf(const FrameHeader& header, std::span<const std::byte> head_body,
                    std::span<const std::span<const std::byte>> values) {
  FrameHeader clean = header;
  clean.checksum = 0;
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, &clean, sizeof(clean));
  if (!head_body.empty()) XXH3_64bits_update(&state, head_body.data(), head_body.size());
  for (std::span<const std::byte> piece : values) {
    if (!piece.empty()) XXH3_64bits_update(&state, piece.data(), piece.size());
  }
  return XXH3_64bits_digest(&state);
}

}  // namespace

size_t Frame::bytes() const {
  size_t total = head.size();
  for (std::span<const std::byte> piece : values) total += piece.size();
  return total;
}

std::optional<BodyLayout> LayoutOf(const FrameHeader& header, std::span<const std::byte> body) {
  uint32_t bitmap_bytes = 0, mask_bytes = 0;
  if (HasParams(header.type)) {
    if (body.size() < sizeof(PushParams)) return std::nullopt;
    std::memcpy(&bitmap_bytes, body.data() + offsetof(PushParams, bitmap_bytes), sizeof(bitmap_bytes));
    std::memcpy(&mask_bytes, body.data() + offsetof(PushParams, mask_bytes), sizeof(mask_bytes));
  }
  const BodyLayout at = LayOut(header.type, header.entry_count, bitmap_bytes, mask_bytes, header.key_count);
  if (at.values > body.size()) return std::nullopt;
  return at;
}

Status CheckHeader(const FrameHeader& header, uint32_t max_body_bytes) {
  if (header.magic != kMagic)
    return BadFrame("it does not begin with \"CARN\"; the peer is not a Cairn node");
  if (header.version != kProtocolVersion) {
    return BadFrame("protocol version " + std::to_string(header.version) + ", this node speaks " +
                    std::to_string(kProtocolVersion) + ": run the same release everywhere");
  }
  const FrameType type = header.type;
  if (type < FrameType::kControl || type > FrameType::kClockReply) {
    return BadFrame("unknown type " + std::to_string(static_cast<int>(type)));
  }
  if ((header.flags & ~AllowedFlags(type)) != 0) {
    return BadFrame("flags " + std::to_string(header.flags) + " on type " +
                    std::to_string(static_cast<int>(type)));
  }
  // A receiver that takes the largest frames takes the largest of each type.
  const uint32_t most = MostBodyBytes(type);
  const uint32_t limit = max_body_bytes < kMaxBodyBytes && max_body_bytes < most ? max_body_bytes : most;
  if (header.body_bytes > limit) {
    return BadFrame("a body of " + std::to_string(header.body_bytes) + " bytes where " +
                    std::to_string(limit) + " are allowed");
  }
  if ((header.entry_count != 0 && !MayHaveEntries(type)) || (header.key_count != 0 && !MayHaveKeys(type))) {
    return BadFrame("entries or keys on type " + std::to_string(static_cast<int>(type)));
  }
  if ((header.flags & kFlagCoded) != 0) {  // the plain header is checked once it is known
    if ((header.flags & kFlagRefused) != 0) return BadFrame("a refusal is never coded");
    if (header.body_bytes < kCodedPrefixBytes) return BadFrame("a coded body without its beginning");
    return Status::Ok();
  }
  // A lower bound that needs no more than the header; LayoutOf has the exact one.
  const uint64_t least = (HasParams(type) ? sizeof(PushParams) : 0) +
                         uint64_t{header.entry_count} * sizeof(SlotEntry) +
                         uint64_t{header.key_count} * sizeof(uint64_t);
  if (least > header.body_bytes) return BadFrame("entries and keys do not fit into the body");
  return Status::Ok();
}

void Seal(Frame& frame) {
  const size_t bytes = frame.bytes();
  CAIRN_CHECK(frame.head.size() >= sizeof(FrameHeader));
  FrameHeader& header = frame.header();
  CAIRN_CHECK(bytes - sizeof(FrameHeader) <= std::max(kMaxBodyBytes, MostBodyBytes(header.type)));
  header.body_bytes = static_cast<uint32_t>(bytes - sizeof(FrameHeader));
  CAIRN_CHECK((header.flags & ~AllowedFlags(header.type)) == 0);
  if ((header.flags & kFlagBodyUnchecked) != 0) {
    header.checksum = ChecksumOf(header, {}, {});
    return;
  }
  const auto head_body = std::as_const(frame.head).bytes().subspan(sizeof(FrameHeader));
  std::span<const std::span<const std::byte>> values;
  if ((header.flags & kFlagValuesChecked) != 0) values = frame.values;
  header.checksum = ChecksumOf(header, head_body, values);
}

Status CheckBody(const FrameHeader& header, std::span<const std::byte> body) {
  CAIRN_CHECK(body.size() == header.body_bytes);
  size_t checked = (header.flags & kFlagBodyUnchecked) != 0 ? 0 : body.size();
  if (HasSections(header.type, header.flags)) {
    const std::optional<BodyLayout> at = LayoutOf(header, body);
    if (!at) return BadFrame("its sections do not fit into the body");
    if ((header.flags & kFlagValuesChecked) == 0) checked = at->values;
  }
  if (ChecksumOf(header, body.first(checked), {}) != header.checksum) {
    return BadFrame("wrong checksum, it was damaged on the way");
  }
  return Status::Ok();
}

Buffer Flatten(const Frame& frame, BufferPool& pool) {
  Buffer out = pool.Get(frame.bytes());
  std::memcpy(out.data(), frame.head.data(), frame.head.size());
  size_t at = frame.head.size();
  for (std::span<const std::byte> piece : frame.values) {
    CopyBytes(out.data() + at, piece.data(), piece.size());
    at += piece.size();
  }
  return out;
}

Buffer CopyOfValues(const Frame& frame, BufferPool& pool) {
  Buffer copy = pool.Get(frame.bytes() - frame.head.size());
  size_t at = 0;
  for (std::span<const std::byte> piece : frame.values) {
    CopyBytes(copy.data() + at, piece.data(), piece.size());
    at += piece.size();
  }
  return copy;
}

void KeepValues(Frame& frame, BufferPool& pool) {
  if (!std::exchange(frame.transient, false)) return;
  frame.owned = CopyOfValues(frame, pool);
  frame.values.assign(1, frame.owned.bytes());
}

Result<InFrame> Parse(std::span<const std::byte> bytes, uint32_t max_body_bytes, BufferPool& pool) {
  if (bytes.size() < sizeof(FrameHeader)) return BadFrame("shorter than a header");
  InFrame frame;
  std::memcpy(&frame.header, bytes.data(), sizeof(FrameHeader));
  if (Status s = CheckHeader(frame.header, max_body_bytes); !s.ok()) return s;
  const std::span<const std::byte> body = bytes.subspan(sizeof(FrameHeader));
  if (body.size() != frame.header.body_bytes) return BadFrame("its length is not what the header says");
  if (Status s = CheckBody(frame.header, body); !s.ok()) return s;
  frame.storage = pool.Get(body.size());
  CopyBytes(frame.storage.data(), body.data(), body.size());
  return frame;
}

}  // namespace cairn::wire
