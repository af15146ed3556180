#include "transport/tcp/frame_reader.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "wire/coding.h"

namespace cairn::transport {
namespace {
constexpr size_t kHeaderBytes = sizeof(wire::FrameHeader);
constexpr size_t kMagicBytes = sizeof(wire::FrameHeader::magic);

wire::FrameHeader NoHeader() {
  wire::FrameHeader header;
  std::memset(static_cast<void*>(&header), 0, sizeof(header));
  return header;
}
}  // namespace

FrameReader::FrameReader(BufferPool& pool, uint32_t max_body_bytes, ReadGuards guards)
    : pool_(pool),
      max_body_bytes_(max_body_bytes),
      guards_(std::move(guards)),
      inbound_(pool.Get(kInboundBytes)),
      header_(NoHeader()) {}

std::array<std::span<std::byte>, 2> FrameReader::Space() {
  if (in_body()) {
    // Everything that was in the inbound buffer belonged to this body, so it is free again.
    CAIRN_CHECK(begin_ == end_);
    begin_ = end_ = 0;
    const size_t missing = body_need_ - body_have_;
    std::span<std::byte> first{body_.data() + body_have_, std::min(missing, kPieceBytes)};
    // The end of the body and what follows it in one read.
    if (first.size() == missing) return {first, inbound_.bytes().first(Ahead())};
    return {first, {}};
  }
  if (begin_ > 0) {  // at most the beginning of a header is left
    std::memmove(inbound_.data(), inbound_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  CAIRN_CHECK(end_ < inbound_.size());
  const size_t room = inbound_.size() - end_;
  return {inbound_.bytes().subspan(end_, end_ < kHeaderBytes ? std::min(room, Ahead() - end_) : room), {}};
}

// Large frames mostly come one after the other: of the next one only the header is wanted here, the body
// goes straight to where it is to lie.
size_t FrameReader::Ahead() const { return body_was_large_ ? kHeaderBytes : inbound_.size(); }

void FrameReader::Filled(size_t n) {
  if (in_body()) {
    const size_t to_body = std::min({n, body_need_ - body_have_, kPieceBytes});
    body_have_ += to_body;
    n -= to_body;
  }
  end_ += n;
  CAIRN_CHECK(end_ <= inbound_.size());
}

Result<bool> FrameReader::Next(wire::InFrame* frame) {
  if (!begun_) {
    Result<bool> begun = BeginFrame();
    if (!begun.ok() || !*begun) return begun;
  }
  if (in_body()) return false;
  return FinishFrame(frame);
}

Result<bool> FrameReader::BeginFrame() {
  const std::span<const std::byte> unread = rest();
  // A peer that speaks something else may never send a whole header: look at the first bytes.
  uint32_t magic = 0;
  std::memcpy(&magic, unread.data(), std::min(unread.size(), kMagicBytes));
  if (unread.size() >= kMagicBytes && magic != wire::kMagic) {
    header_ = NoHeader();
    return Status(Code::kProtocol, "these are not Cairn's bytes: this port speaks only Cairn's own protocol");
  }
  if (unread.size() < kHeaderBytes) return false;
  std::memcpy(static_cast<void*>(&header_), unread.data(), kHeaderBytes);
  if (header_.version != wire::kProtocolVersion) {
    return Status(Code::kProtocol, "the peer speaks protocol version " + std::to_string(header_.version) +
                                       ", this node version " + std::to_string(wire::kProtocolVersion) +
                                       ": run the same Cairn everywhere");
  }
  if (Status checked = wire::CheckHeader(header_, MostBodyBytes()); !checked.ok()) return checked;
  starved_ = !TakeReceipt();
  if (starved_) return false;
  starved_since_us_ = 0;
  if (header_.body_bytes > 0 && !pool_.TryGet(header_.body_bytes, &body_)) {
    GiveReceipt();
    return Status(Code::kResourceExhausted,
                  "there is no memory for a body of " + std::to_string(header_.body_bytes) + " bytes now");
  }
  begin_ += kHeaderBytes;
  begun_ = true;
  body_need_ = header_.body_bytes;
  body_was_large_ = body_need_ >= kInboundBytes;
  body_have_ = std::min(body_need_, end_ - begin_);
  if (body_need_ > 0) {
    std::memcpy(body_.data(), inbound_.data() + begin_, body_have_);
    begin_ += body_have_;
  }
  return true;
}

Result<bool> FrameReader::FinishFrame(wire::InFrame* frame) {
  begun_ = false;
  body_need_ = body_have_ = 0;
  GiveReceipt();
  if (Status checked = wire::CheckBody(header_, body_.bytes()); !checked.ok()) return checked;
  frame->header = header_;
  frame->storage = std::move(body_);
  body_ = Buffer();
  if ((header_.flags & wire::kFlagCoded) != 0) {
    if (Status decoded = wire::DecodeFrame(frame, MostBodyBytes(), pool_); !decoded.ok()) return decoded;
  }
  return true;
}

// Of the frame that header_ is of.
uint32_t FrameReader::MostBodyBytes() const {
  const bool small = header_.body_bytes <= guards_.small_body && (header_.flags & wire::kFlagCoded) == 0;
  if (guards_.most_body == nullptr || small) return max_body_bytes_;
  return static_cast<uint32_t>(
      std::min<uint64_t>(max_body_bytes_, (*guards_.most_body)(guards_.conn, header_)));
}

bool FrameReader::TakeReceipt() {
  if (guards_.receipts == nullptr || header_.body_bytes <= ReceiptBudget::kSmallBody) return true;
  if (!guards_.receipts->Take(guards_.peer, header_.body_bytes)) return false;
  receipt_bytes_ = header_.body_bytes;
  return true;
}

void FrameReader::GiveReceipt() {
  if (receipt_bytes_ > 0) guards_.receipts->Give(guards_.peer, std::exchange(receipt_bytes_, 0));
}

void FrameReader::Preload(std::span<const std::byte> bytes) {
  CAIRN_CHECK(bytes.size() <= inbound_.size() && end_ == 0 && !begun_);
  std::copy(bytes.begin(), bytes.end(), inbound_.data());
  end_ = bytes.size();
}

void FrameReader::Reset() {
  GiveReceipt();
  begun_ = body_was_large_ = starved_ = false;
  starved_since_us_ = 0;
  begin_ = end_ = body_need_ = body_have_ = 0;
  body_ = Buffer();
}

int64_t FrameReader::StarvedUs(int64_t now_us) {
  if (!starved_) return 0;
  if (starved_since_us_ == 0) starved_since_us_ = now_us;
  return now_us - starved_since_us_;
}

}  // namespace cairn::transport
