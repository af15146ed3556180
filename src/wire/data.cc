// Data frames. First the encoders, each has its decoder below; docs/internals/wire-format.md has the
// tables. What they are given comes from our own code, so a broken rule here is a broken invariant.
#include "wire/data.h"

#include <cmath>
#include <cstring>
#include <new>
#include <utility>

#include "base/check.h"
#include "wire/body_layout.h"

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
  if (header.type == FrameType::kClock) return {};
  CAIRN_CHECK(HasSections(header.type, header.flags));
  const BodyLayout at = LayOut(header.type, header.entry_count, 0, 0, 0);
  std::byte* first = frame.head.data() + sizeof(FrameHeader) + at.entries;
  return {reinterpret_cast<SlotEntry*>(first), header.entry_count};
}

FramePtr EncodeClock(TableId table, StateVersion state_version, bool last, BufferPool& pool) {
  auto frame = MakeRecycled<Frame>();
  frame->head = pool.Get(sizeof(FrameHeader));
  FrameHeader header;
  header.type = FrameType::kClock;
  header.flags = last ? kFlagDone : 0;
  header.table = table.value;
  header.state_version = state_version.value;
  std::memcpy(frame->head.data(), &header, sizeof(header));
  Seal(*frame);
  return frame;
}

FramePtr EncodeClockReply(const FrameHeader& request, Round start, StateVersion state_version,
                          BufferPool& pool) {
  FramePtr frame = StartReply(FrameType::kClockReply, request, 0, pool);
  frame->header().round = start.value;
  frame->header().state_version = state_version.value;
  Seal(*frame);
  return frame;
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

// Decoders of data frames. They run on bytes from a peer: every length is checked before use, a
// violation is a Status of kProtocol, and nothing is allocated where all is well. The caller has
// called CheckHeader and CheckBody (or Parse) before; decoders do not rely on more than that the
// body is as long as the header says.

namespace {

constexpr uint32_t kLastCode = static_cast<uint32_t>(Code::kInternal);

// Received bodies are 64-byte aligned (InFrame), so sections are used where they lie.
void RequireAligned(std::span<const std::byte> body) {
  CAIRN_CHECK(reinterpret_cast<uintptr_t>(body.data()) % alignof(uint64_t) == 0);
}

template <class T>
std::span<const T> Section(std::span<const std::byte> body, uint64_t at, uint32_t count) {
  return {reinterpret_cast<const T*>(body.data() + at), count};
}

uint64_t CountSum(std::span<const SlotEntry> entries) {
  uint64_t sum = 0;  // at most 65536 * 2^32
  for (const SlotEntry& entry : entries) sum += entry.count;
  return sum;
}

// Entries, bitmap, keys and values of a frame with sections, cut out and checked.
struct Sections {
  std::span<const SlotEntry> entries;
  std::span<const std::byte> bitmap;
  std::span<const std::byte> mask;
  std::span<const uint64_t> keys;
  std::span<const std::byte> values;
};

Status Cut(const FrameHeader& header, std::span<const std::byte> body, Sections* out) {
  if (body.size() != header.body_bytes) return BadFrame("its length is not what the header says");
  if (!HasSections(header.type, header.flags)) return BadFrame("it is still coded");
  RequireAligned(body);
  const std::optional<BodyLayout> at = LayoutOf(header, body);
  if (!at) return BadFrame("its sections do not fit into the body");
  uint32_t bitmap_bytes = 0, mask_bytes = 0;
  if (HasParams(header.type)) {
    std::memcpy(&bitmap_bytes, body.data() + offsetof(PushParams, bitmap_bytes), sizeof(bitmap_bytes));
    std::memcpy(&mask_bytes, body.data() + offsetof(PushParams, mask_bytes), sizeof(mask_bytes));
  }
  out->entries = Section<SlotEntry>(body, at->entries, header.entry_count);
  out->bitmap = Section<std::byte>(body, at->bitmap, bitmap_bytes);
  out->mask = Section<std::byte>(body, at->mask, mask_bytes);
  out->keys = Section<uint64_t>(body, at->keys, header.key_count);
  out->values = body.subspan(at->values);
  const auto gap = [&](uint64_t from, uint64_t to) { return AllZero(body.subspan(from, to - from)); };
  if (!gap(at->entries + out->entries.size_bytes(), at->bitmap) ||
      !gap(at->bitmap + bitmap_bytes, at->mask) || !gap(at->mask + mask_bytes, at->keys) ||
      !gap(at->keys + out->keys.size_bytes(), at->values)) {
    return BadFrame("padding is not zero");
  }
  return CheckSlots(out->entries);
}

// Each unit of `count` (an element, or a row of elements) has the same, whole number of values.
Status CheckValues(const Sections& s) {
  const uint64_t sum = CountSum(s.entries);
  if (!s.keys.empty() && sum != s.keys.size()) return BadFrame("counts do not add up to the number of keys");
  if (s.values.empty()) return Status::Ok();
  if (sum == 0 || s.values.size() % sum != 0 || s.values.size() / sum % 4 != 0) {
    return BadFrame(std::to_string(s.values.size()) + " bytes of values for a count of " +
                    std::to_string(sum));
  }
  return Status::Ok();
}

// Problem entries and a text: the body of a PushReply or a refused RoundReply.
Status CutProblems(const FrameHeader& header, std::span<const std::byte> body, PushReplyView* out) {
  if (body.size() != header.body_bytes) return BadFrame("its length is not what the header says");
  const uint64_t entry_bytes = uint64_t{header.entry_count} * sizeof(SlotEntry);
  if (entry_bytes > body.size()) return BadFrame("entries do not fit into the body");
  if (header.key_count != 0) return BadFrame("keys in a reply");
  RequireAligned(body);
  out->entries = Section<SlotEntry>(body, 0, header.entry_count);
  const std::span<const std::byte> rest = body.subspan(entry_bytes);
  if (rest.size() > (out->entries.empty() ? 0 : kMaxTextBytes))
    return BadFrame("text too long or out of place");
  out->text = {reinterpret_cast<const char*>(rest.data()), rest.size()};
  for (const SlotEntry& entry : out->entries) {
    if (entry.count == 0 || entry.count > kLastCode) return BadFrame("code " + std::to_string(entry.count));
  }
  return CheckSlots(out->entries);
}

}  // namespace

Status CheckSlots(std::span<const SlotEntry> entries) {
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].slot >= kMaxSlots) return BadFrame("slot " + std::to_string(entries[i].slot));
    if (i > 0 && entries[i - 1].slot >= entries[i].slot) return BadFrame("slots do not ascend");
  }
  return Status::Ok();
}

Status CheckParams(FrameType type, uint16_t flags, const PushParams& params) {
  if (!(params.weight >= 0 && params.weight <= kMaxWeight))
    return BadFrame("weight is not within 0 and 1e30");
  uint64_t rest = params.reserved0;
  for (uint64_t word : params.reserved) rest |= word;
  if (rest != 0) return BadFrame("reserved fields are not zero");
  const bool marks = type == FrameType::kDone || (flags & kFlagDone) != 0;
  if (params.bitmap_bytes > (marks ? kMaxBitmapBytes : 0))
    return BadFrame("done bitmap too long or out of place");
  if (!std::isfinite(params.value_scale) || params.value_scale == 0)
    return BadFrame("value scale 0 or not finite");
  if (!std::isfinite(params.scale)) return BadFrame("scale is not finite");
  const bool decides = params.has(kParamDecide);
  if ((params.flags & ~kAllParamFlags) != 0 || (params.flags != 0 && type == FrameType::kPush) ||
      (decides && (type != FrameType::kDone || params.has(kParamTwoPhase))) ||
      (params.has(kParamSkip) && !decides) || (params.has(kParamNotFinite) && !params.has(kParamTwoPhase)) ||
      (params.has(kParamWeighted) && decides)) {
    return BadFrame("parameter flags " + std::to_string(params.flags));
  }
  if (params.op > static_cast<uint8_t>(PushOp::kAssignOnce) || params.column > kStepColumn ||
      (params.op == 0 && params.column != 0)) {
    return BadFrame("operation " + std::to_string(params.op) + " on column " + std::to_string(params.column));
  }
  const bool carries = type == FrameType::kPush || type == FrameType::kContribute;
  if (params.mask_bytes > (carries ? kMaxMaskBytes : 0))
    return BadFrame("segment mask too long or out of place");
  return Status::Ok();
}

Result<PushView> DecodePush(const FrameHeader& header, std::span<const std::byte> body) {
  if (!HasParams(header.type)) return BadFrame("not a push");
  Sections s;
  if (Status bad = Cut(header, body, &s); !bad.ok()) return bad;
  PushView view;
  std::memcpy(&view.params, body.data(), sizeof(PushParams));
  if (Status bad = CheckParams(header.type, header.flags, view.params); !bad.ok()) return bad;
  if (header.type == FrameType::kPush && header.round != 0) return BadFrame("a numbered push has no round");
  if (Status bad = CheckValues(s); !bad.ok()) return bad;
  if (header.type == FrameType::kDone && !s.values.empty()) return BadFrame("a bare done mark has no values");
  view.entries = s.entries;
  view.done_bitmap = s.bitmap;
  view.mask = s.mask;
  view.keys = s.keys;
  view.values = s.values;
  return view;
}

Result<PullView> DecodePull(const FrameHeader& header, std::span<const std::byte> body) {
  if (header.type != FrameType::kPull) return BadFrame("not a pull");
  Sections s;
  if (Status bad = Cut(header, body, &s); !bad.ok()) return bad;
  if (!s.values.empty()) return BadFrame("a pull has no values");
  if (Status bad = CheckValues(s); !bad.ok()) return bad;
  for (const SlotEntry& entry : s.entries) {
    if (entry.number != s.entries.front().number || entry.number > kStepColumn)
      return BadFrame("the entries of a pull name more than one column, or one that can't be");
  }
  return PullView{s.entries, s.keys};
}

Result<ValuesView> DecodeValues(const FrameHeader& header, std::span<const std::byte> body) {
  const bool reply = header.type == FrameType::kPullReply || header.type == FrameType::kRoundReply;
  if (!reply || !HasSections(header.type, header.flags)) return BadFrame("not a reply with values");
  if (header.key_count != 0) return BadFrame("keys in a reply");
  Sections s;
  if (Status bad = Cut(header, body, &s); !bad.ok()) return bad;
  if (Status bad = CheckValues(s); !bad.ok()) return bad;
  return ValuesView{s.entries, s.values};
}

Result<PushReplyView> DecodePushReply(const FrameHeader& header, std::span<const std::byte> body) {
  if (header.type != FrameType::kPushReply) return BadFrame("not the reply to a push");
  PushReplyView view;
  if (Status bad = CutProblems(header, body, &view); !bad.ok()) return bad;
  return view;
}

bool DecodeRoundRefusal(const FrameHeader& header, std::span<const std::byte> body, PushReplyView* reply) {
  if (header.type != FrameType::kRoundReply || (header.flags & kFlagRefused) == 0) return false;
  PushReplyView view;
  if (!CutProblems(header, body, &view).ok() || view.entries.empty()) return false;
  *reply = view;
  return true;
}

Result<ErrorView> DecodeError(const FrameHeader& header, std::span<const std::byte> body) {
  if (header.type != FrameType::kError) return BadFrame("not an error");
  if (body.size() != header.body_bytes) return BadFrame("its length is not what the header says");
  uint32_t head[2];
  if (body.size() < sizeof(head)) return BadFrame("an error without a code");
  std::memcpy(head, body.data(), sizeof(head));
  const std::span<const std::byte> rest = body.subspan(sizeof(head));
  if (head[0] == 0 || head[0] > kLastCode) return BadFrame("code " + std::to_string(head[0]));
  if (head[1] != rest.size() || rest.size() > kMaxTextBytes) return BadFrame("text of a wrong length");
  return ErrorView{static_cast<Code>(head[0]), {reinterpret_cast<const char*>(rest.data()), rest.size()}};
}

}  // namespace cairn::wire
