#include "wire/replica.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/copy_bytes.h"
#include "wire/body_layout.h"

namespace cairn::wire {
namespace {

constexpr size_t Pad8(size_t n) { return (n + 7) / 8 * 8; }

uint64_t OpBytes(const OpHeader& header) {
  return sizeof(OpHeader) + (header.kind == OpKind::kPush ? sizeof(PushParams) : 0) +
         uint64_t{header.key_count} * sizeof(uint64_t) + Pad8(header.mask_bytes) + Pad8(header.payload_bytes);
}

bool Known(OpKind kind) { return kind >= OpKind::kPush && kind <= OpKind::kHash; }

Status BadOp(const std::string& what) { return BadFrame("replication: " + what); }

// What the header alone tells; then all parts lie within `raw`.
Status CheckOp(const OpHeader& h, std::span<const std::byte> raw) {
  if (!Known(h.kind)) return BadOp("unknown operation " + std::to_string(static_cast<int>(h.kind)));
  if (h.bytes > raw.size() || OpBytes(h) != h.bytes) return BadOp("an operation's lengths do not fit");
  if (h.slot >= kMaxSlots) return BadOp("slot " + std::to_string(h.slot));
  if (h.kind != OpKind::kPush && (h.key_count != 0 || h.mask_bytes != 0))
    return BadOp("keys or a mask where none belong");
  if (h.reserved0 != 0 || h.reserved1 != 0 || h.reserved2 != 0) return BadOp("reserved fields are not zero");
  return Status::Ok();
}

}  // namespace

std::byte* OpBatch::Extend(size_t count) {
  constexpr size_t kFirst = 4096;
  const size_t had = frame_.empty() ? sizeof(FrameHeader) : frame_.size(), size = had + count;
  if (frame_.capacity() < size) {
    Buffer larger = pool_.Get(std::max({size, 2 * frame_.capacity(), kFirst}));
    if (!frame_.empty()) CopyBytes(larger.data(), frame_.data(), had);
    frame_ = std::move(larger);
  }
  frame_.Resize(size);
  return frame_.data() + had;
}

void OpBatch::Add(OpHeader header, const PushParams* params, std::span<const uint64_t> keys,
                  std::span<const std::byte> mask, std::span<const std::byte> payload,
                  const std::shared_ptr<const Buffer>& keep) {
  constexpr size_t kWorthLending = 8 * 1024;
  const bool lend = keep != nullptr && payload.size() >= kWorthLending;
  CAIRN_CHECK((header.kind == OpKind::kPush) == (params != nullptr));
  CAIRN_CHECK(params != nullptr || (keys.empty() && mask.empty()));
  CAIRN_CHECK(mask.size() <= kMaxMaskBytes);
  CAIRN_CHECK(keys.size_bytes() + mask.size() + payload.size() <= kMaxBodyBytes);
  header.key_count = static_cast<uint32_t>(keys.size());
  header.mask_bytes = static_cast<uint32_t>(mask.size());
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  header.bytes = static_cast<uint32_t>(OpBytes(header));
  std::byte* to = Extend(header.bytes - (lend ? payload.size() : 0));
  const auto put = [&to](const void* from, size_t size, size_t room) {
    if (size > 0) std::memcpy(to, from, size);
    if (room > size) std::memset(to + size, 0, room - size);
    to += room;
  };
  put(&header, sizeof(header), sizeof(header));
  if (params != nullptr) {
    PushParams own = *params;
    own.bitmap_bytes = 0;
    own.mask_bytes = header.mask_bytes;
    put(&own, sizeof(own), sizeof(own));
  }
  put(keys.data(), keys.size_bytes(), keys.size_bytes());
  put(mask.data(), mask.size(), Pad8(mask.size()));
  if (!lend) return put(payload.data(), payload.size(), Pad8(payload.size()));
  lent_.push_back({static_cast<size_t>(to - frame_.data()), payload});
  lent_bytes_ += payload.size();
  if (keeps_.empty() || keeps_.back() != keep) keeps_.push_back(keep);
  put(nullptr, 0, Pad8(payload.size()) - payload.size());
}

void OpBatch::AddRaw(std::span<const std::byte> raw, uint64_t epoch, uint64_t committed) {
  OpHeader header;
  CAIRN_CHECK(raw.size() >= sizeof(header));
  std::memcpy(&header, raw.data(), sizeof(header));
  CAIRN_CHECK(header.bytes == raw.size());
  header.epoch = epoch;
  header.committed = committed;
  std::byte* to = Extend(raw.size());
  CopyBytes(to, raw.data(), raw.size());
  std::memcpy(to, &header, sizeof(header));
}

FramePtr OpBatch::Take(uint64_t number, uint64_t incarnation, uint64_t state_version, Body body) {
  if (frame_.empty()) Extend(0);
  auto frame = MakeRecycled<Frame>();
  frame->head = std::exchange(frame_, Buffer());
  // The head ends where the first payload was lent; what was written behind it follows in turns.
  const std::span<const std::byte> own = std::as_const(frame->head).bytes();
  for (size_t i = 0; i < lent_.size(); ++i) {
    const size_t end = i + 1 < lent_.size() ? lent_[i + 1].at : own.size();
    frame->values.push_back(lent_[i].payload);
    if (end > lent_[i].at) frame->values.push_back(own.subspan(lent_[i].at, end - lent_[i].at));
  }
  if (!lent_.empty()) frame->head.Resize(lent_.front().at);
  frame->keeps = std::exchange(keeps_, {});
  const bool lends = !lent_.empty();
  lent_.clear();
  lent_bytes_ = 0;
  FrameHeader& header = *new (frame->head.data()) FrameHeader();
  header.type = FrameType::kReplicate;
  header.request_id = number;
  header.incarnation = incarnation;
  header.state_version = state_version;
  if (body == Body::kUnchecked) {
    header.flags |= kFlagBodyUnchecked;
  } else if (lends) {
    header.flags |= kFlagValuesChecked;  // all of it is
  }
  Seal(*frame);
  return frame;
}

bool SameOperation(std::span<const std::byte> raw, std::span<const std::byte> other) {
  OpHeader a, b;
  if (raw.size() != other.size() || raw.size() < sizeof(a)) return false;
  std::memcpy(&a, raw.data(), sizeof(a));
  std::memcpy(&b, other.data(), sizeof(b));
  a.epoch = b.epoch;
  a.committed = b.committed;
  return std::memcmp(&a, &b, sizeof(a)) == 0 &&
         std::memcmp(raw.data() + sizeof(a), other.data() + sizeof(b), raw.size() - sizeof(a)) == 0;
}

Result<OpView> ParseOp(std::span<const std::byte> raw) {
  CAIRN_CHECK(reinterpret_cast<uintptr_t>(raw.data()) % alignof(uint64_t) == 0);
  OpView op;
  if (raw.size() < sizeof(OpHeader)) return BadOp("an operation is cut off");
  std::memcpy(&op.header, raw.data(), sizeof(OpHeader));
  const OpHeader& h = op.header;
  if (Status bad = CheckOp(h, raw); !bad.ok()) return bad;
  op.raw = raw.first(h.bytes);
  size_t at = sizeof(OpHeader);
  if (h.kind == OpKind::kPush) {
    std::memcpy(&op.params, op.raw.data() + at, sizeof(PushParams));
    at += sizeof(PushParams);
    if (Status bad = CheckParams(FrameType::kPush, 0, op.params); !bad.ok()) return bad;
    if (op.params.mask_bytes != h.mask_bytes) return BadOp("two lengths of one mask");
  }
  op.keys = {reinterpret_cast<const uint64_t*>(op.raw.data() + at), h.key_count};
  at += op.keys.size_bytes();
  op.mask = op.raw.subspan(at, h.mask_bytes);
  at += Pad8(h.mask_bytes);
  op.payload = op.raw.subspan(at, h.payload_bytes);
  const auto gap = [&op](std::span<const std::byte> part) {
    const size_t end = static_cast<size_t>(part.data() - op.raw.data()) + part.size();
    return AllZero(op.raw.subspan(end, Pad8(end) - end));
  };
  if (!gap(op.mask) || !gap(op.payload)) return BadOp("padding is not zero");
  return op;
}

bool OpReader::Next(OpView* op) {
  if (rest_.empty() || !status_.ok()) return false;
  Result<OpView> parsed = ParseOp(rest_);
  if (!parsed.ok()) {
    status_ = parsed.status();
    return false;
  }
  *op = *parsed;
  rest_ = rest_.subspan(op->header.bytes);
  return true;
}

Status CheckOps(std::span<const std::byte> body) {
  OpReader reader(body);
  for (OpView op; reader.Next(&op);) {
  }
  return reader.status();
}

FramePtr EncodeReplicaAck(uint64_t received, std::span<const SlotEntry> refused, uint64_t state_version,
                          BufferPool& pool) {
  CAIRN_CHECK(refused.size() <= kMaxSlots);
  auto frame = MakeRecycled<Frame>();
  frame->head = pool.Get(sizeof(FrameHeader) + refused.size_bytes());
  FrameHeader& header = *new (frame->head.data()) FrameHeader();
  header.type = FrameType::kReplicaAck;
  header.request_id = received;
  header.state_version = state_version;
  header.entry_count = static_cast<uint32_t>(refused.size());
  if (!refused.empty())
    std::memcpy(frame->head.data() + sizeof(FrameHeader), refused.data(), refused.size_bytes());
  Seal(*frame);
  return frame;
}

Result<std::span<const SlotEntry>> DecodeReplicaAck(const FrameHeader& header,
                                                    std::span<const std::byte> body) {
  if (header.type != FrameType::kReplicaAck) return BadFrame("not an acknowledgement of replication");
  if (body.size() != header.body_bytes || header.entry_count > kMaxSlots ||
      body.size() != header.entry_count * sizeof(SlotEntry))
    return BadFrame("an acknowledgement's length does not fit");
  CAIRN_CHECK(reinterpret_cast<uintptr_t>(body.data()) % alignof(SlotEntry) == 0);
  const std::span<const SlotEntry> refused(reinterpret_cast<const SlotEntry*>(body.data()),
                                           header.entry_count);
  if (Status bad = CheckSlots(refused); !bad.ok()) return bad;
  return refused;
}

}  // namespace cairn::wire
