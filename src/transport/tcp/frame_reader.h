// Turns a stream of bytes into frames, without a socket: says where the next bytes should be read
// to, and hands out frames as they become whole. Small frames come many at a time through a 64 KiB
// buffer; the rest of a body that has only begun is read straight into its own pooled buffer.
// Every length is checked before memory is taken for it. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/buffer.h"
#include "base/ids.h"
#include "cairn/status.h"
#include "transport/tcp/receipt_budget.h"
#include "wire/frame.h"

namespace cairn::transport {

// The largest body that a frame with this header may have on this connection, coded ones (kFlagCoded) once
// they are plain: what the node knows of the frame's table, or of what it has asked for.
using MostBody = std::function<uint64_t(ConnId, const wire::FrameHeader&)>;

// What a node sets that does not trust its peers. Both outlive the reader; null: no such bound.
struct ReadGuards {
  const MostBody* most_body = nullptr;
  ReceiptBudget* receipts = nullptr;
  std::string peer = {};                            // whose budget it is
  ConnId conn = {};                                 // what most_body is asked about
  uint64_t small_body = ReceiptBudget::kSmallBody;  // most_body is not asked about plain bodies up to this
};

class FrameReader {
 public:
  static constexpr size_t kInboundBytes = 64 * 1024;
  // At most so much of a body is asked for in one read: pieces that fit the cache.
  static constexpr size_t kPieceBytes = 256 * 1024;

  FrameReader(BufferPool& pool, uint32_t max_body_bytes, ReadGuards guards = {});
  FrameReader(const FrameReader&) = delete;
  FrameReader& operator=(const FrameReader&) = delete;
  ~FrameReader() { GiveReceipt(); }

  // The limit for bodies whose header has not been read yet.
  void set_max_body_bytes(uint32_t bytes) { max_body_bytes_ = bytes; }

  // Where the next bytes go: first the first piece, then the second (may be empty). Never both
  // empty. Valid until the next call of any other function.
  std::array<std::span<std::byte>, 2> Space();
  // `n` bytes have been written to Space().
  void Filled(size_t n);
  // Takes the next whole frame; false where more bytes are needed. After an error the stream is
  // of no more use; bad_header() is what it stumbled over (all zero if it was no header at all).
  Result<bool> Next(wire::InFrame* frame);
  const wire::FrameHeader& bad_header() const { return header_; }

  // Bytes read beyond the frames handed out, for a connection that moves to another reader.
  // Requires that no body has begun, i.e. that Next was not called after its last frame.
  std::span<const std::byte> rest() const { return {inbound_.data() + begin_, end_ - begin_}; }
  // Puts bytes in front, as if they had been read. At most kInboundBytes, before the first Space().
  void Preload(std::span<const std::byte> bytes);
  // Forgets everything read so far: for a connection that only drains.
  void Reset();

  // Next said false because the receipts of others leave no room for the next body: to be asked again
  // later, and nothing is to be read until then.
  bool starved() const { return starved_; }
  // How long it has been starved, since it was first asked. Its driver asks at each try.
  int64_t StarvedUs(int64_t now_us);
  // A body that counts among the receipts is under way.
  bool has_receipt() const { return receipt_bytes_ > 0; }
  // In the middle of a body.
  bool in_body() const { return body_have_ < body_need_; }

 private:
  size_t Ahead() const;
  Result<bool> BeginFrame();
  Result<bool> FinishFrame(wire::InFrame* frame);
  uint32_t MostBodyBytes() const;
  bool TakeReceipt();
  void GiveReceipt();

  BufferPool& pool_;
  uint32_t max_body_bytes_;
  const ReadGuards guards_;
  uint64_t receipt_bytes_ = 0;  // taken from the budget for the body under way
  bool starved_ = false;
  int64_t starved_since_us_ = 0;  // 0: not starved, or not asked yet
  Buffer inbound_;
  size_t begin_ = 0, end_ = 0;  // unread bytes of inbound_
  bool begun_ = false;          // header_ is checked, its body is being collected
  bool body_was_large_ = false;
  wire::FrameHeader header_{};
  Buffer body_;
  size_t body_need_ = 0, body_have_ = 0;
};

}  // namespace cairn::transport
