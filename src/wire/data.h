// Data frames: pushes, contributions, pulls and their replies. Raw little-endian arrays, each
// section aligned to 64 bytes within the body:
//
//   PushParams (kPush, kContribute, kDone only, 128 bytes)
//   SlotEntry[entry_count]
//   done bitmap, one bit a slot (kContribute with kFlagDone, kDone)
//   segment mask, one bit a segment (kPush, kContribute; empty: all segments)
//   uint64 keys[key_count], slot-major in the order of the entries
//   values, slot-major: rows in the order of the keys, or a dense slot's packed elements
//
// Views point into the received frame and die with it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "cairn/types.h"
#include "wire/frame.h"

namespace cairn::wire {

// Texts of errors and refusals, and an AbortJob's reason; encoders cut longer ones.
inline constexpr size_t kMaxTextBytes = 4096;
inline constexpr double kMaxWeight = 1e30;  // well inside float's range, in which sums are taken

// Bits of PushParams::flags.
enum ParamFlag : uint16_t {
  kParamTwoPhase = 1,   // the round is summed up and reported, and closes by a decision
  kParamDecide = 2,     // kDone: the second phase of such a round: `scale`, or kParamSkip
  kParamSkip = 4,       // with kParamDecide: the round closes without being applied
  kParamNotFinite = 8,  // with kParamTwoPhase: this worker's gradient is not finite, it sends none
  kParamJoined = 16,    // a mark of a worker that has run out of data: it agrees to everything
  kParamWeighted = 32,  // the user gave the weight of this worker's part: all must give one, or none
};
inline constexpr uint16_t kAllParamFlags = 63;

struct PushParams {
  double weight = 1.0;       // of a sync contribution or mark; 0 to kMaxWeight
  double value_scale = 1.0;  // every value is multiplied by it (AMP); finite and not 0
  double scale = 1.0;        // kParamDecide: the mean gradient is multiplied by it (clipping)
  double lr = 0;
  double weight_decay = 0;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double dampening = 0;
  uint32_t bitmap_bytes = 0;  // length of the done bitmap
  uint32_t mask_bytes = 0;    // length of the segment mask
  uint16_t flags = 0;         // ParamFlag
  uint8_t op = 0;             // PushOp
  uint8_t column = 0;         // of an assign
  uint32_t reserved0 = 0;
  uint64_t step = 0;          // Hyper::step
  uint64_t reserved[4] = {};  // zero

  Hyper hyper() const { return {lr, weight_decay, beta1, beta2, eps, dampening, step}; }
  void set_hyper(const Hyper& h) {
    lr = h.lr, weight_decay = h.weight_decay, beta1 = h.beta1;
    beta2 = h.beta2, eps = h.eps, dampening = h.dampening, step = h.step;
  }
  bool has(ParamFlag flag) const { return (flags & flag) != 0; }
};
static_assert(sizeof(PushParams) == 128);

// One slot's part of a kFlagReport answer, in the place of values; its entry's count is 4.
struct SlotReport {
  double sum_squares = 0;   // of the mean gradient (kReduceSum: the sum)
  uint64_t not_finite = 0;  // 1: the sum is not finite, or a worker said so of its gradient
};
static_assert(sizeof(SlotReport) == 16);

// kPush, kContribute, kDone. For a push to an async table the header's round is 0.
struct PushView {
  PushParams params;
  std::span<const SlotEntry> entries;
  std::span<const std::byte> done_bitmap;  // bit s: this worker contributes to slot s in this round
  std::span<const std::byte> mask;         // bit s: segment s of the dense table is in the push
  std::span<const uint64_t> keys;
  std::span<const std::byte> values;
};
// kPull; header.round with kFlagSyncPull: answer when every slot named has closed `round` rounds
// (its open round is >= round).
struct PullView {
  std::span<const SlotEntry> entries;  // number: the column, the same in all (sparse: 0)
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
  std::span<const std::byte> mask;
  std::span<const uint64_t> keys;
  Buffer owned;                    // moved into the frame
  Pieces values;                   // may point into `owned`
  Coding coding = Coding::kPlain;  // Frame::coding
  bool transient = false;          // Frame::transient
};
FramePtr EncodeData(DataParts parts, BufferPool& pool);
// The entries of an encoded data frame, to number them before they are sent; Seal() again after. A clock has
// none.
std::span<SlotEntry> MutableEntries(Frame& frame);

// A worker has ended so many steps of a bounded table; `last`: all that it will. The round, 0 here, is set
// when it is sent.
FramePtr EncodeClock(TableId table, StateVersion state_version, bool last, BufferPool& pool);
FramePtr EncodeClockReply(const FrameHeader& request, Round start, StateVersion state_version,
                          BufferPool& pool);

FramePtr EncodePushReply(const FrameHeader& request, std::span<const SlotEntry> problems,
                         std::string_view text, BufferPool& pool);
FramePtr EncodeError(const FrameHeader& request, const Status& error, BufferPool& pool);
// A RoundReply that refuses the round in the named slots (count = Code).
FramePtr EncodeRoundRefusal(const FrameHeader& request, std::span<const SlotEntry> problems,
                            std::string_view text, BufferPool& pool);
// True where the reply is a refusal made by EncodeRoundRefusal; then `reply` has its parts.
bool DecodeRoundRefusal(const FrameHeader& header, std::span<const std::byte> body, PushReplyView* reply);

}  // namespace cairn::wire
