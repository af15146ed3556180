// Coded bodies: whatever they claim, what decodes has the size that it says, within the limit, and
// can be coded and decoded again to the same bytes.
#include "fuzz/frame_input.h"
#include "wire/coding.h"

using namespace cairn;
using namespace cairn::wire;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr uint32_t kLimit = 1 << 20;
  if (size < sizeof(FrameHeader)) return 0;
  InFrame in;
  std::memcpy(&in.header, data, sizeof(FrameHeader));
  const size_t body = size - sizeof(FrameHeader);
  in.header.magic = kMagic;
  in.header.version = kProtocolVersion;
  in.header.flags |= kFlagCoded;
  in.header.body_bytes = static_cast<uint32_t>(body);
  if (!CheckHeader(in.header, kLimit).ok()) return 0;
  in.storage = fuzz::Pool().Get(body);
  std::memcpy(in.storage.data(), data + sizeof(FrameHeader), body);
  if (!DecodeFrame(&in, kLimit, fuzz::Pool()).ok()) return 0;
  FUZZ_EXPECT(in.body().size() == in.header.body_bytes && in.body().size() <= kLimit);
  FUZZ_EXPECT(CheckHeader(in.header, kLimit).ok());

  Frame plain;
  plain.head = fuzz::Pool().Get(sizeof(FrameHeader) + in.body().size());
  std::memcpy(plain.head.data(), &in.header, sizeof(FrameHeader));
  if (!in.body().empty())
    std::memcpy(plain.head.data() + sizeof(FrameHeader), in.body().data(), in.body().size());
  plain.coding = Coding::kLz4;
  const FramePtr coded = CodeFrame(plain, fuzz::Pool());
  if (coded == nullptr) return 0;
  InFrame again;
  again.header = coded->header();
  again.storage = fuzz::Pool().Get(again.header.body_bytes);
  std::memcpy(again.storage.data(), coded->head.data() + sizeof(FrameHeader), again.storage.size());
  FUZZ_EXPECT(DecodeFrame(&again, kLimit, fuzz::Pool()).ok());
  FUZZ_EXPECT(fuzz::SameBytes(again.body(), in.body()));
  return 0;
}
