// Replication frames: operations of slots, from the primary's shard thread to a backup's. The body of
// a kReplicate frame is a sequence of operations, each an OpHeader and what belongs to its kind, each
// a multiple of 8 bytes. docs/internals/wire-format.md has the layout, docs/internals/consistency.md (rules
// 40 to 47) what they mean. The decoder checks lengths and push parameters; what a payload says is the
// server's business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/recycled.h"
#include "wire/data.h"
#include "wire/frame.h"

namespace cairn::wire {

enum class OpKind : uint8_t {
  kPush = 1,      // a numbered push's part was applied: PushParams, keys, mask, values
  kRefusal = 2,   // a numbered push's part was refused: payload (code, text)
  kSumUp = 3,     // a round is summed up: payload
  kClose = 4,     // a round closes: payload, with the sums unless it was summed up before
  kBegin = 5,     // the slot is copied anew: forget what you have of it. a: `added` of the backup
  kChunk = 6,     // a piece of the copy. a: its number, from 0
  kEnd = 7,       // the copy is whole. a: number of chunks. Operations after `index` follow
  kContinue = 8,  // a new primary, after a promotion: operations above `index` of older epochs are void.
                  // a: those above it are sent again; who has less has to be copied to anew
  kCommit = 9,    // says only what is committed
  kHash = 10,     // at `index` under state version b the slot's content had the hash a
};

struct OpHeader {
  uint32_t bytes = 0;  // of the whole operation, padding included
  OpKind kind = OpKind::kCommit;
  uint8_t reserved0 = 0;
  uint16_t reserved1 = 0;
  uint32_t slot = 0;
  uint32_t table = 0;      // kPush, kRefusal, kSumUp, kClose
  uint64_t epoch = 0;      // under which it is sent
  uint64_t index = 0;      // its place in the slot's order; kBegin … kHash: the last operation's
  uint64_t committed = 0;  // operations up to this index are on every owner in sync
  uint64_t a = 0;          // kPush, kRefusal: the worker's incarnation; kSumUp, kClose: the round
  uint64_t b = 0;          // kPush, kRefusal: the push's number
  uint32_t key_count = 0;
  uint32_t mask_bytes = 0;
  uint32_t payload_bytes = 0;  // values, or what the kind has instead
  uint32_t reserved2 = 0;
};
static_assert(sizeof(OpHeader) == 72);

// Points into the received frame and dies with it.
struct OpView {
  OpHeader header;
  PushParams params;  // kPush
  std::span<const uint64_t> keys;
  std::span<const std::byte> mask;
  std::span<const std::byte> payload;
  std::span<const std::byte> raw;  // the whole operation, to be kept or sent on
};

// Collects operations into the body of a frame, where they will be sent from.
class OpBatch {
 public:
  explicit OpBatch(BufferPool& pool) : pool_(pool) {}
  bool empty() const { return bytes() == 0; }
  size_t bytes() const { return frame_.empty() ? 0 : frame_.size() - sizeof(FrameHeader) + lent_bytes_; }
  // `header.bytes`, the counts and the lengths in `params` are filled in. `params`, keys and mask only
  // for kPush. Keys, mask and payload are together at most kMaxBodyBytes; a frame takes one such
  // operation behind kOpRoom / 2 bytes of others.
  void Add(OpHeader header, const PushParams* params, std::span<const uint64_t> keys,
           std::span<const std::byte> mask, std::span<const std::byte> payload) {
    Add(header, params, keys, mask, payload, nullptr);
  }
  // `keep`: what the payload lies in; a large payload is then not copied, but sent from there.
  void Add(OpHeader header, const PushParams* params, std::span<const uint64_t> keys,
           std::span<const std::byte> mask, std::span<const std::byte> payload,
           const std::shared_ptr<const Buffer>& keep);
  // An operation as it was received, under another epoch.
  void AddRaw(std::span<const std::byte> raw, uint64_t epoch, uint64_t committed);
  // A kReplicate frame with everything collected, numbered `number`, sealed; the batch is empty then.
  enum class Body { kChecked, kUnchecked };  // kFlagBodyUnchecked
  FramePtr Take(uint64_t number, uint64_t incarnation, uint64_t state_version, Body body = Body::kChecked);

 private:
  std::byte* Extend(size_t count);

  BufferPool& pool_;
  Buffer frame_;  // the header's room, and the operations so far but for what was lent
  struct Lent {
    size_t at = 0;  // of frame_: it comes before what stands there
    std::span<const std::byte> payload;
  };
  std::vector<Lent> lent_;
  size_t lent_bytes_ = 0;
  RecycledVector<std::shared_ptr<const Buffer>> keeps_;
};

// Splits the body of a kReplicate frame: Next() until it says false; then status() tells whether all
// of it was well formed. Nothing of a frame takes effect before CheckOps has said yes to it.
class OpReader {
 public:
  explicit OpReader(std::span<const std::byte> body) : rest_(body) {}
  bool Next(OpView* op);
  Status status() const { return status_; }

 private:
  std::span<const std::byte> rest_;
  Status status_;
};
// Every operation is well formed, to the end of the body.
Status CheckOps(std::span<const std::byte> body);
// One operation that was kept, at an address that is a multiple of 8.
Result<OpView> ParseOp(std::span<const std::byte> raw);
// Whether they are the same operation, sent under whichever epoch, with whatever committed by then.
bool SameOperation(std::span<const std::byte> raw, std::span<const std::byte> other);

// `refused`, ascending: slots of which something in a frame up to `received` was not taken, and nothing
// since (number: the epoch that the receiver knows of).
FramePtr EncodeReplicaAck(uint64_t received, std::span<const SlotEntry> refused, uint64_t state_version,
                          BufferPool& pool);
Result<std::span<const SlotEntry>> DecodeReplicaAck(const FrameHeader& header,
                                                    std::span<const std::byte> body);

}  // namespace cairn::wire
