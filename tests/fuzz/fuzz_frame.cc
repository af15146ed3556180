// Parse on any bytes; then again with the checksum set right, so that the input gets past it: such
// a frame parses exactly if header and layout are right.
#include "fuzz/frame_input.h"
#include "wire/body_layout.h"

using namespace cairn;
using namespace cairn::wire;

namespace {

// The input as a frame with the right length and checksum; false where the layout does not fit.
bool SealInput(const FrameHeader& header, std::span<const std::byte> body, Frame* frame) {
  size_t head_body = body.size();
  if (HasSections(header.type, header.flags)) {
    const auto at = LayoutOf(header, body);
    if (!at) return false;
    head_body = at->values;
  }
  frame->head = fuzz::Pool().Get(sizeof(FrameHeader) + head_body);
  std::memcpy(frame->head.data(), &header, sizeof(header));
  if (head_body != 0) std::memcpy(frame->head.data() + sizeof(header), body.data(), head_body);
  frame->values = {body.subspan(head_body)};
  Seal(*frame);
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  (void)Parse(bytes, kMaxBodyBytes, fuzz::Pool());
  if (size < sizeof(FrameHeader)) return 0;
  FrameHeader header;
  std::memcpy(&header, data, sizeof(header));
  header.body_bytes = static_cast<uint32_t>(size - sizeof(header));
  if (!CheckHeader(header, kMaxBodyBytes).ok()) return 0;
  const auto body = bytes.subspan(sizeof(header));
  Frame frame;
  const bool fits = SealInput(header, body, &frame);
  if (!fits) {
    FUZZ_EXPECT(!CheckBody(header, body).ok());
    return 0;
  }
  const Buffer flat = Flatten(frame, fuzz::Pool());
  const Result<InFrame> in = Parse(flat.bytes(), kMaxBodyBytes, fuzz::Pool());
  FUZZ_EXPECT(in.ok());
  FUZZ_EXPECT(fuzz::SameBytes(in->body(), body));
  return 0;
}
