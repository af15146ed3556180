// Data frames: pushes, contributions, pulls and their replies. Raw little-endian arrays, each
// section aligned to 64 bytes within the body:
//
//   PushParams (kPush, kContribute, kDone only, 64 bytes)
//   SlotEntry[entry_count]
//   done bitmap, one bit a slot (kContribute with kFlagDone, kDone)
//   uint64 keys[key_count], slot-major in the order of the entries
//   values, slot-major: rows in the order of the keys, or a dense slot's packed elements
//
// Views point into the received frame and die with it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/types.h"
#include "wire/frame.h"

namespace cairn::wire {

inline constexpr double kMaxWeight = 1e30;  // well inside float's range, in which sums are taken

struct PushParams {
  double weight = 1.0;        // of a sync contribution or mark; 0 to kMaxWeight
  float lr = 0;
  float weight_decay = 0;
  uint32_t bitmap_bytes = 0;  // length of the done bitmap
  uint32_t reserved0 = 0;
  uint64_t reserved[5] = {};  // zero
};
static_assert(sizeof(PushParams) == 64);

// kPush, kContribute, kDone. For a push to an async table the header's round is 0.
struct PushView {
  PushParams params;
  std::span<const SlotEntry> entries;
  std::span<const std::byte> done_bitmap;  // bit s: this worker contributes to slot s in this round
  std::span<const uint64_t> keys;
  std::span<const std::byte> values;
};
// kPull; header.round with kFlagSyncPull: answer when every slot named has closed `round` rounds
// (its open round is >= round).
struct PullView {
  std::span<const SlotEntry> entries;  // number: unused, 0
  std::span<const uint64_t> keys;
};
// kPullReply and kRoundReply. `failed` entries stand in a RoundReply whose round was refused in
// those slots (count = Code); then `text` says why and there are no values.
struct ValuesView {
  std::span<const SlotEntry> entries;  // number: packed Position
  std::span<const std::byte> values;
};
// kPushReply: empty entries mean that every slot's part is applied (now or before). Otherwise one
// entry for each slot that is not: count = Code, number = where to resume (gap) or the refused seq.
struct PushReplyView {
  std::span<const SlotEntry> entries;
  std::string_view text;
};
struct ErrorView {
  Code code = Code::kInternal;
  std::string_view text;
};

// Decoders check every length against the body before use; none of them allocates.
Result<PushView> DecodePush(const FrameHeader& header, std::span<const std::byte> body);
Result<PullView> DecodePull(const FrameHeader& header, std::span<const std::byte> body);
Result<ValuesView> DecodeValues(const FrameHeader& header, std::span<const std::byte> body);
Result<PushReplyView> DecodePushReply(const FrameHeader& header, std::span<const std::byte> body);
Result<ErrorView> DecodeError(const FrameHeader& header, std::span<const std::byte> body);

// What a data frame is made of. The encoder copies everything but the values, which it only
// refers to (`values`), unless `owned` holds them.
struct DataParts {
  FrameType type = FrameType::kPush;
  uint16_t flags = 0;
  uint64_t request_id = 0;
  Incarnation incarnation;
  StateVersion state_version;
  Round round;
  TableId table;
  const PushParams* params = nullptr;  // required for kPush, kContribute, kDone
  std::span<const SlotEntry> entries;
  std::span<const std::byte> done_bitmap;
  std::span<const uint64_t> keys;
  Buffer owned;                                       // moved into the frame
  std::vector<std::span<const std::byte>> values;     // may point into `owned`
};
FramePtr EncodeData(DataParts parts, BufferPool& pool);
// The entries of an encoded data frame, to number them before they are sent; Seal() again after.
std::span<SlotEntry> MutableEntries(Frame& frame);

FramePtr EncodePushReply(const FrameHeader& request, std::span<const SlotEntry> problems,
                         std::string_view text, BufferPool& pool);
FramePtr EncodeError(const FrameHeader& request, const Status& error, BufferPool& pool);
// A RoundReply that refuses the round in the named slots (count = Code).
FramePtr EncodeRoundRefusal(const FrameHeader& request, std::span<const SlotEntry> problems,
                            std::string_view text, BufferPool& pool);
// True where the reply is a refusal made by EncodeRoundRefusal; then `reply` has its parts.
bool DecodeRoundRefusal(const FrameHeader& header, std::span<const std::byte> body, PushReplyView* reply);

}  // namespace cairn::wire
