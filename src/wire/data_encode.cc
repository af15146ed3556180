// Encoders of data frames. Each has its decoder in data_decode.cc; docs/internals/wire-format.md has the
// tables. What they are given comes from our own code, so a broken rule here is a broken invariant.
#include <cstring>
#include <new>
#include <utility>

#include "base/check.h"
#include "wire/body_layout.h"
#include "wire/data.h"

namespace cairn::wire {
namespace {

// Peers refuse entries that do not ascend: better found here, at the sender.
void CheckEntries(std::span<const SlotEntry> entries, size_t key_count) {
  uint64_t sum = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    CAIRN_CHECK(entries[i].slot < kMaxSlots);
    CAIRN_CHECK(i == 0 || entries[i - 1].slot < entries[i].slot);
    sum += entries[i].count;
  }
  CAIRN_CHECK(key_count == 0 || sum == key_count);
}

template <class T>
void Put(std::byte* body, uint64_t at, std::span<const T> items) {
  if (!items.empty()) std::memcpy(body + at, items.data(), items.size_bytes());
}

// Header and body of an answer; the body is filled in by the caller.
FramePtr StartReply(FrameType type, const FrameHeader& request, size_t body_bytes, BufferPool& pool) {
  auto frame = MakeRecycled<Frame>();
  frame->head = pool.Get(sizeof(FrameHeader) + body_bytes);
  FrameHeader& header = *new (frame->head.data()) FrameHeader();
  header.type = type;
  header.request_id = request.request_id;
  header.incarnation = request.incarnation;
  header.round = request.round;
  header.table = request.table;
  return frame;
}

FramePtr EncodeProblems(FrameType type, uint16_t flags, const FrameHeader& request,
                        std::span<const SlotEntry> problems, std::string_view text, BufferPool& pool) {
  CheckEntries(problems, 0);
  for (const SlotEntry& problem : problems) {
    CAIRN_CHECK(problem.count > 0 && problem.count <= static_cast<uint32_t>(Code::kInternal));
  }
  if (problems.empty()) text = {};
  text = CutText(text);
  FramePtr frame = StartReply(type, request, problems.size_bytes() + text.size(), pool);
  frame->header().flags = flags;
  frame->header().entry_count = static_cast<uint32_t>(problems.size());
  std::byte* body = frame->head.data() + sizeof(FrameHeader);
  Put(body, 0, problems);
  Put(body, problems.size_bytes(), std::span<const char>(text));
  Seal(*frame);
  return frame;
}

}  // namespace

// Cut before a character of UTF-8 rather than in it.
std::string_view CutText(std::string_view text) {
  if (text.size() <= kMaxTextBytes) return text;
  size_t end = kMaxTextBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

FramePtr EncodeData(DataParts parts, BufferPool& pool) {
  CAIRN_CHECK(HasSections(parts.type, parts.flags));
  CAIRN_CHECK(HasParams(parts.type) == (parts.params != nullptr));
  CAIRN_CHECK(parts.entries.size() <= kMaxSlots && parts.done_bitmap.size() <= kMaxBitmapBytes);
  CAIRN_CHECK(parts.keys.size() <= kMaxBodyBytes / sizeof(uint64_t));
  const bool may_mark = parts.type == FrameType::kDone || (parts.flags & kFlagDone) != 0;
  CAIRN_CHECK(parts.done_bitmap.empty() || may_mark);
  CheckEntries(parts.entries, parts.keys.size());

  const auto bitmap_bytes = static_cast<uint32_t>(parts.done_bitmap.size());
  const auto entry_count = static_cast<uint32_t>(parts.entries.size());
  const auto key_count = static_cast<uint32_t>(parts.keys.size());
  const auto mask_bytes = static_cast<uint32_t>(parts.mask.size());
  CAIRN_CHECK(mask_bytes <= kMaxMaskBytes);
  CAIRN_CHECK(mask_bytes == 0 || parts.type == FrameType::kPush || parts.type == FrameType::kContribute);
  const BodyLayout at = LayOut(parts.type, entry_count, bitmap_bytes, mask_bytes, key_count);

  auto frame = MakeRecycled<Frame>();
  frame->head = pool.Get(sizeof(FrameHeader) + at.values);
  FrameHeader& header = *new (frame->head.data()) FrameHeader();
  header.type = parts.type;
  header.flags = parts.flags;
  header.request_id = parts.request_id;
  header.incarnation = parts.incarnation.value;
  header.state_version = parts.state_version.value;
  header.round = parts.round.value;
  header.table = parts.table.value;
  header.entry_count = entry_count;
  header.key_count = key_count;

  // Padding is zero: pool memory has old bytes in it. The last 64 bytes before each boundary are
  // cleared, then the sections are written over them.
  std::byte* body = frame->head.data() + sizeof(FrameHeader);
  for (uint64_t end : {at.bitmap, at.mask, at.keys, at.values}) {
    if (end >= kAlignment) std::memset(body + end - kAlignment, 0, kAlignment);
  }
  if (parts.params != nullptr) {
    PushParams params = *parts.params;
    params.bitmap_bytes = bitmap_bytes;
    params.mask_bytes = mask_bytes;
    std::memcpy(body, &params, sizeof(params));
  }
  Put(body, at.entries, parts.entries);
  Put(body, at.bitmap, parts.done_bitmap);
  Put(body, at.mask, parts.mask);
  Put(body, at.keys, parts.keys);
  frame->owned = std::move(parts.owned);
  frame->values = std::move(parts.values);
  frame->coding = parts.coding;
  frame->transient = parts.transient;
  if (frame->values.empty() && !frame->owned.empty()) frame->values = {frame->owned.bytes()};
  Seal(*frame);
  return frame;
}

std::span<SlotEntry> MutableEntries(Frame& frame) {
  const FrameHeader& header = frame.header();
  CAIRN_CHECK(HasSections(header.type, header.flags));
  const BodyLayout at = LayOut(header.type, header.entry_count, 0, 0, 0);
  std::byte* first = frame.head.data() + sizeof(FrameHeader) + at.entries;
  return {reinterpret_cast<SlotEntry*>(first), header.entry_count};
}

FramePtr EncodePushReply(const FrameHeader& request, std::span<const SlotEntry> problems,
                         std::string_view text, BufferPool& pool) {
  return EncodeProblems(FrameType::kPushReply, 0, request, problems, text, pool);
}

FramePtr EncodeRoundRefusal(const FrameHeader& request, std::span<const SlotEntry> problems,
                            std::string_view text, BufferPool& pool) {
  CAIRN_CHECK(!problems.empty());
  return EncodeProblems(FrameType::kRoundReply, kFlagRefused, request, problems, text, pool);
}

FramePtr EncodeError(const FrameHeader& request, const Status& error, BufferPool& pool) {
  CAIRN_CHECK(!error.ok());
  const std::string_view text = CutText(error.message());
  const uint32_t head[2] = {static_cast<uint32_t>(error.code()), static_cast<uint32_t>(text.size())};
  FramePtr frame = StartReply(FrameType::kError, request, sizeof(head) + text.size(), pool);
  std::byte* body = frame->head.data() + sizeof(FrameHeader);
  Put(body, 0, std::span<const uint32_t>(head));
  Put(body, sizeof(head), std::span<const char>(text));
  Seal(*frame);
  return frame;
}

}  // namespace cairn::wire
