#include "wire/coding.h"

#include <lz4.h>

#include <cstring>
#include <optional>
#include <string>

#include "base/check.h"
#include "base/planted.h"
#include "wire/body_layout.h"
#include "wire/nonzero_words.h"

namespace cairn::wire {
namespace {

// Not worth a look: what a packet has room for anyway.
constexpr size_t kLeastBytes = 512;
// No block of lz4 unfolds further.
constexpr uint64_t kMostLz4 = 255;
// lz4 is used where one byte in so many is saved.
constexpr size_t kLeastGain = 16;

struct CodedPrefix {
  uint32_t plain_bytes = 0;
  Coding coding = Coding::kPlain;
  uint8_t reserved[11] = {};
};
static_assert(sizeof(CodedPrefix) == kCodedPrefixBytes);

using PieceSpan = std::span<const std::span<const std::byte>>;

HalfFormat HalfOf(Coding coding) {
  return coding == Coding::kFloat16 ? HalfFormat::kFloat16 : HalfFormat::kBfloat16;
}

bool IsHalf(Coding coding) { return coding == Coding::kFloat16 || coding == Coding::kBfloat16; }

// The frame's head, with room for the prefix behind its header and for `more` bytes at its end.
std::byte* CopyHead(const Frame& frame, size_t more, BufferPool& pool, Frame* out) {
  const size_t body = frame.head.size() - sizeof(FrameHeader);
  out->head = pool.Get(frame.head.size() + kCodedPrefixBytes + more);
  std::byte* to = out->head.data();
  std::memcpy(to, frame.head.data(), sizeof(FrameHeader));
  to += sizeof(FrameHeader) + kCodedPrefixBytes;
  if (body > 0) std::memcpy(to, frame.head.data() + sizeof(FrameHeader), body);
  return to + body;
}

bool PutHalves(const Frame& frame, size_t value_bytes, BufferPool& pool, Frame* out) {
  std::byte* to = CopyHead(frame, value_bytes / 2, pool, out);
  for (std::span<const std::byte> piece : frame.values) {
    const size_t count = piece.size() / sizeof(float);
    if (!PackHalves(HalfOf(frame.coding), piece.data(), count, to)) return false;
    to += 2 * count;
  }
  return true;
}

bool PutNonZero(const Frame& frame, size_t value_bytes, BufferPool& pool, Frame* out) {
  NonZeroWriter writer;
  for (std::span<const std::byte> piece : frame.values) writer.Count(piece);
  if (writer.bytes() + kCodedPrefixBytes >= value_bytes) return false;
  writer.Begin(CopyHead(frame, writer.bytes(), pool, out));
  for (std::span<const std::byte> piece : frame.values) writer.Put(piece);
  return true;
}

bool PutLz4(const Frame& frame, BufferPool& pool, Frame* out) {
  const size_t plain = frame.bytes() - sizeof(FrameHeader);
  Buffer whole = pool.Get(plain);  // a block needs its input in one piece
  std::byte* to = whole.data();
  const auto add = [&](std::span<const std::byte> bytes) {
    if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
    to += bytes.size();
  };
  add(frame.head.bytes().subspan(sizeof(FrameHeader)));
  for (std::span<const std::byte> piece : frame.values) add(piece);
  // No room for more than what is worth the other side's time: lz4 gives up when it is full.
  const size_t room = plain - plain / kLeastGain;
  constexpr size_t kBefore = sizeof(FrameHeader) + kCodedPrefixBytes;
  out->head = pool.Get(kBefore + room);
  const int bytes = LZ4_compress_default(reinterpret_cast<const char*>(whole.data()),
                                         reinterpret_cast<char*>(out->head.data() + kBefore),
                                         static_cast<int>(plain), static_cast<int>(room));
  if (bytes <= 0) return false;
  std::memcpy(out->head.data(), frame.head.data(), sizeof(FrameHeader));
  out->head.Resize(kBefore + static_cast<size_t>(bytes));
  return true;
}

bool WholeWords(PieceSpan values) {
  for (std::span<const std::byte> piece : values) {
    if (piece.size() % sizeof(uint32_t) != 0) return false;
  }
  return true;
}

bool Put(const Frame& frame, BufferPool& pool, Frame* out) {
  if (frame.coding == Coding::kLz4) return PutLz4(frame, pool, out);
  const size_t value_bytes = frame.bytes() - frame.head.size();
  if (value_bytes < kLeastBytes || !WholeWords(frame.values)) return false;
  return IsHalf(frame.coding) ? PutHalves(frame, value_bytes, pool, out)
                              : PutNonZero(frame, value_bytes, pool, out);
}

// The values of a body whose sections before them are plain.
bool TakeValues(Coding coding, std::span<const std::byte> coded, std::span<std::byte> to) {
  if (to.size() % sizeof(uint32_t) != 0) return false;
  if (coding == Coding::kNonZero) return ReadNonZero(coded, to);
  if (coded.size() * 2 != to.size()) return false;
  if (CAIRN_BUG(kWrongCoding)) coding = coding == Coding::kFloat16 ? Coding::kBfloat16 : Coding::kFloat16;
  UnpackHalves(HalfOf(coding), coded.data(), to.size() / sizeof(float), to.data());
  return true;
}

bool Take(const FrameHeader& plain, Coding coding, std::span<const std::byte> coded,
          std::span<std::byte> to) {
  if (coding == Coding::kLz4) {
    const int bytes =
        LZ4_decompress_safe(reinterpret_cast<const char*>(coded.data()), reinterpret_cast<char*>(to.data()),
                            static_cast<int>(coded.size()), static_cast<int>(to.size()));
    return bytes >= 0 && static_cast<size_t>(bytes) == to.size();
  }
  const std::optional<BodyLayout> at = LayoutOf(plain, coded);
  if (!at || at->values > to.size()) return false;
  if (at->values > 0) std::memcpy(to.data(), coded.data(), at->values);
  return TakeValues(coding, coded.subspan(at->values), to.subspan(at->values));
}

}  // namespace

Coding CodingOf(WireFormat format) {
  switch (format) {
    case WireFormat::kPlain: return Coding::kPlain;
    case WireFormat::kFloat16: return Coding::kFloat16;
    case WireFormat::kBfloat16: return Coding::kBfloat16;
    case WireFormat::kTopK: return Coding::kNonZero;
    case WireFormat::kLz4: return Coding::kLz4;
  }
  return Coding::kPlain;
}

bool Rounds(WireFormat format) { return IsHalf(CodingOf(format)); }

bool RoundValues(WireFormat format, TooLarge too_large, std::span<std::byte> values) {
  const Coding coding = CodingOf(format);
  if (CAIRN_BUG(kAnswerNotRounded) && too_large == TooLarge::kLargest) return true;
  return !IsHalf(coding) ||
         RoundToHalf(HalfOf(coding), too_large, values.data(), values.size() / sizeof(float));
}

FramePtr CodeFrame(const Frame& frame, BufferPool& pool) {
  const FrameHeader& plain = frame.header();
  if (!HasSections(plain.type, plain.flags) || plain.body_bytes < kLeastBytes) return nullptr;
  auto coded = MakeRecycled<Frame>();
  if (frame.coding == Coding::kPlain || !Put(frame, pool, coded.get())) return nullptr;
  CodedPrefix prefix;
  prefix.plain_bytes = plain.body_bytes;
  prefix.coding = frame.coding;
  std::memcpy(coded->head.data() + sizeof(FrameHeader), &prefix, sizeof(prefix));
  coded->header().flags |= kFlagCoded;
  Seal(*coded);
  return coded;
}

Status DecodeFrame(InFrame* frame, uint32_t max_body_bytes, BufferPool& pool) {
  FrameHeader& header = frame->header;
  const std::span<const std::byte> body = frame->body();
  CAIRN_CHECK((header.flags & kFlagCoded) != 0 && body.size() == header.body_bytes);
  if (body.size() < kCodedPrefixBytes) return BadFrame("a coded body without its beginning");
  CodedPrefix prefix;
  std::memcpy(&prefix, body.data(), sizeof(prefix));
  uint8_t rest = 0;
  for (uint8_t byte : prefix.reserved) rest |= byte;
  const bool known = prefix.coding >= Coding::kFloat16 && prefix.coding <= Coding::kLz4;
  if (!known || rest != 0) {
    return BadFrame("coding " + std::to_string(static_cast<int>(prefix.coding)) +
                    " is not one that this node knows");
  }
  header.flags &= static_cast<uint16_t>(~kFlagCoded);
  header.body_bytes = prefix.plain_bytes;
  header.checksum = 0;
  if (Status checked = CheckHeader(header, max_body_bytes); !checked.ok()) return checked;
  if (prefix.coding == Coding::kLz4 && prefix.plain_bytes > kMostLz4 * body.size())
    return BadFrame("lz4 does not make so much of so little");
  Buffer plain;
  if (!pool.TryGet(prefix.plain_bytes, &plain)) return NoMemory(prefix.plain_bytes);
  if (!Take(header, prefix.coding, body.subspan(kCodedPrefixBytes), plain.bytes())) {
    return BadFrame("what is coded does not give the " + std::to_string(prefix.plain_bytes) +
                    " bytes that it says");
  }
  frame->storage = std::move(plain);
  return Status::Ok();
}

}  // namespace cairn::wire
