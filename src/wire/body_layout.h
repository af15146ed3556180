// Where the sections of a data frame's body lie: the arithmetic that encoder, decoder and checksum
// share. Internal to the wire layer. Nothing here can overflow: counts are 32-bit, sums 64-bit.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "wire/cluster_state.h"
#include "wire/data.h"
#include "wire/frame.h"

namespace cairn::wire {

static_assert(std::endian::native == std::endian::little, "sections are used where they lie");

inline constexpr uint32_t kMaxBitmapBytes = kMaxSlots / 8;
inline constexpr uint32_t kMaxMaskBytes = kMaxSegments / 8;
std::string_view CutText(std::string_view text);

// What padding has to be.
inline bool AllZero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

inline Status BadFrame(std::string text) { return {Code::kProtocol, "bad frame: " + std::move(text)}; }

inline Status NoMemory(uint64_t bytes) {
  return {Code::kResourceExhausted,
          "there is no memory for a body of " + std::to_string(bytes) + " bytes now"};
}

constexpr uint64_t AlignUp(uint64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

constexpr bool HasParams(FrameType type) {
  return type == FrameType::kPush || type == FrameType::kContribute || type == FrameType::kDone;
}
// What every coded body begins with (coding.cc).
inline constexpr size_t kCodedPrefixBytes = 16;

// True for bodies made of aligned sections that may end in values; in all others, those that are
// coded included, every byte is covered by the checksum.
constexpr bool HasSections(FrameType type, uint16_t flags) {
  if ((flags & kFlagCoded) != 0) return false;
  switch (type) {
    case FrameType::kPush:
    case FrameType::kContribute:
    case FrameType::kDone:
    case FrameType::kPull:
    case FrameType::kPullReply: return true;
    case FrameType::kRoundReply: return (flags & kFlagRefused) == 0;
    default: return false;
  }
}

// Offsets within the body. A section ends where its length says; the next begins at the next
// multiple of 64; an empty section takes no room.
struct BodyLayout {
  uint64_t entries = 0;
  uint64_t bitmap = 0;
  uint64_t mask = 0;
  uint64_t keys = 0;
  uint64_t values = 0;
};
constexpr BodyLayout LayOut(FrameType type, uint32_t entry_count, uint32_t bitmap_bytes, uint32_t mask_bytes,
                            uint32_t key_count) {
  BodyLayout at;
  at.entries = HasParams(type) ? sizeof(PushParams) : 0;
  at.bitmap = AlignUp(at.entries + uint64_t{entry_count} * sizeof(SlotEntry));
  at.mask = AlignUp(at.bitmap + bitmap_bytes);
  at.keys = AlignUp(at.mask + mask_bytes);
  at.values = AlignUp(at.keys + uint64_t{key_count} * sizeof(uint64_t));
  return at;
}
// The layout that header and body claim; nothing where it does not fit into the body. Reads only
// the push parameters. Requires HasSections.
std::optional<BodyLayout> LayoutOf(const FrameHeader& header, std::span<const std::byte> body);

// Slots are within bounds and ascend.
Status CheckSlots(std::span<const SlotEntry> entries);
// Push parameters in a frame of this type with these flags.
Status CheckParams(FrameType type, uint16_t flags, const PushParams& params);

}  // namespace cairn::wire
