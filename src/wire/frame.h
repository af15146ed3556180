// The frame: a fixed little-endian header of 64 bytes and a body. docs/internals/wire-format.md is the
// specification; this file and data.h / control.h are its only implementation. Pure encode and
// decode: no sockets, no clocks. Bytes from a peer are checked here before anybody uses them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/buffer.h"
#include "base/ids.h"
#include "base/recycled.h"
#include "cairn/status.h"

namespace cairn::wire {

inline constexpr uint32_t kMagic = 0x4E524143;  // the bytes "CARN"
inline constexpr uint8_t kProtocolVersion = 1;
inline constexpr size_t kAlignment = 64;
// No frame is larger, whatever its header says; checked before memory is taken.
inline constexpr uint32_t kMaxBodyBytes = uint32_t{256} << 20;
// But for kReplicate: the largest push is one operation, behind small ones.
inline constexpr uint32_t kOpRoom = uint32_t{1} << 20;
// Control messages are small, and the largest state fits: this bounds what a decoder may be made to build.
inline constexpr uint32_t kMaxControlBytes = uint32_t{16} << 20;
// Until a connection has said a valid Hello or Register.
inline constexpr uint32_t kMaxUnauthenticatedBodyBytes = 64 * 1024;

enum class FrameType : uint8_t {
  kControl = 1,  // FlatBuffers, control.h
  kPush = 2,     // numbered update of an async table
  kPushReply = 3,
  kContribute = 4,  // a worker's part of a sync round
  kDone = 5,        // done mark without a gradient for this shard
  kRoundReply = 6,  // the round is closed (and the values, if they were asked for)
  kPull = 7,
  kPullReply = 8,
  kError = 9,        // answers one request with a code and a text
  kReplicate = 10,   // primary → backup: operations of slots, replica.h; request_id counts from 1
  kReplicaAck = 11,  // backup → primary: every frame up to request_id is taken; entries: slots refused
  // Bounded tables; both are a header alone.
  kClock = 12,       // worker → shard: it has finished `round` steps of the table; 0: it asks where to begin
  kClockReply = 13,  // `round`: the fewest steps that another worker has told of; 0: none has
};

enum FrameFlag : uint16_t {
  kFlagDone = 1 << 0,            // kContribute: carries the done mark of its round for this shard;
                                 // kClock: no step of this worker follows
  kFlagPullAfter = 1 << 1,       // kContribute/kDone: the reply carries the values after the round
  kFlagValuesChecked = 1 << 2,   // the checksum covers the values too
  kFlagSyncPull = 1 << 3,        // kPull: wait until `round` rounds are closed; of a bounded table: until no
                                 // worker is too far behind `round` steps
  kFlagRefused = 1 << 4,         // kRoundReply: the round was refused; entries are problems, then a text
  kFlagReport = 1 << 5,          // kRoundReply: the round is summed up, not closed; values are SlotReports
  kFlagAllJoined = 1 << 6,       // kRoundReply: every live worker had marked the round with kParamJoined
  kFlagAssigned = 1 << 7,        // kPull: only when every slot named has been assigned; else kUnavailable
  kFlagTrip = 1 << 8,            // requests: the first of its round trip on this connection (statistics)
  kFlagCoded = 1 << 9,           // the body is coded in fewer bytes: coding.h
  kFlagBodyUnchecked = 1 << 10,  // kReplicate: the checksum covers the header only; both are on one host
};

// How a body may be coded (coding.h). The numbers travel.
enum class Coding : uint8_t { kPlain = 0, kFloat16 = 1, kBfloat16 = 2, kNonZero = 3, kLz4 = 4 };

struct FrameHeader {
  uint32_t magic = kMagic;
  uint8_t version = kProtocolVersion;
  FrameType type = FrameType::kControl;
  uint16_t flags = 0;
  uint64_t request_id = 0;     // chosen by the asker, repeated in the answer
  uint64_t incarnation = 0;    // of the worker on whose behalf; 0 where it does not apply
  uint64_t state_version = 0;  // the sender's ClusterState when it made the frame
  uint64_t round = 0;          // sync: the round; see each message
  uint32_t table = 0;
  uint32_t entry_count = 0;  // slot entries in the body
  uint32_t key_count = 0;    // 64-bit keys in the body
  uint32_t body_bytes = 0;
  uint64_t checksum = 0;  // XXH3-64, see wire-format.md
};
static_assert(sizeof(FrameHeader) == 64);

// One slot's part of a data frame.
struct SlotEntry {
  uint32_t slot = 0;
  uint32_t count = 0;   // dense: elements; sparse: keys; replies to a push: the Code
  uint64_t number = 0;  // push: sequence number; pull reply: position; gap answer: where to resume
};
static_assert(sizeof(SlotEntry) == 16);

// Memory that is sent in this order.
using Pieces = RecycledVector<std::span<const std::byte>>;

// One encoded message, immutable once it has been sent, so that it can be sent again without
// another copy. `head` is the header and everything before the values; `values` are views into
// `owned`, or into memory that the sender of the frame keeps alive until it is answered.
struct Frame {
  Buffer head;
  Buffer owned;
  Pieces values;
  RecycledVector<std::shared_ptr<const Buffer>> keeps;  // what some of `values` lie in
  // What a connection may try, to send fewer bytes. Not part of the message.
  Coding coding = Coding::kPlain;
  // `values` refer to memory that stays as it is only until Network::Send has returned: what is not
  // written by then is copied. Not part of the message.
  bool transient = false;
  FrameHeader& header() { return *reinterpret_cast<FrameHeader*>(head.data()); }
  const FrameHeader& header() const { return *reinterpret_cast<const FrameHeader*>(head.data()); }
  size_t bytes() const;
};
using FramePtr = std::shared_ptr<Frame>;

// A received message. `body` lies in `storage` (64-byte aligned); a receiver that wants to keep it
// moves `storage` out.
struct InFrame {
  FrameHeader header;
  Buffer storage;
  std::span<const std::byte> body() const { return storage.bytes(); }
};

// Checks magic, version, type and lengths. Touches only the header.
Status CheckHeader(const FrameHeader& header, uint32_t max_body_bytes);
// The largest body of a frame with this header where only control messages (and errors) are expected.
constexpr uint64_t MostControlBytes(const FrameHeader& header) {
  return header.type == FrameType::kControl ? kMaxControlBytes : kMaxUnauthenticatedBodyBytes;
}
// Sets body_bytes and checksum from the parts of `frame`. `checked_bytes` of the body lie in head.
void Seal(Frame& frame);
// Checks the checksum of a received frame. Requires that CheckHeader said yes and that the body is
// header.body_bytes long.
Status CheckBody(const FrameHeader& header, std::span<const std::byte> body);
// The whole frame as one piece: what goes over the wire. For the simulator, tests and golden files.
Buffer Flatten(const Frame& frame, BufferPool& pool);
// The values alone, one after the other.
Buffer CopyOfValues(const Frame& frame, BufferPool& pool);
// A transient frame gets its values copied, and is one no more.
void KeepValues(Frame& frame, BufferPool& pool);
// The reverse: header and body checks, then a copy into pool memory.
Result<InFrame> Parse(std::span<const std::byte> bytes, uint32_t max_body_bytes, BufferPool& pool);

}  // namespace cairn::wire
