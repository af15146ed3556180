// Control messages. FlatBuffers has many encodings of one message, so what is compared is the
// message: decoded, encoded, decoded and encoded again it has the same bytes.
#include "fuzz/frame_input.h"
#include "wire/control.h"

using namespace cairn;
using namespace cairn::wire;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  InFrame in;
  if (!fuzz::TakeFrame(data, size, {FrameType::kControl}, &in)) return 0;
  const Result<ControlMessage> message = DecodeControl(in.header, in.body());
  if (!message.ok()) return 0;
  FUZZ_EXPECT(Name(*message)[0] != '\0');
  const Buffer once = Flatten(*EncodeControl(*message, fuzz::Pool()), fuzz::Pool());
  const Result<InFrame> back = Parse(once.bytes(), kMaxBodyBytes, fuzz::Pool());
  FUZZ_EXPECT(back.ok());
  const Result<ControlMessage> again = DecodeControl(back->header, back->body());
  FUZZ_EXPECT(again.ok());
  FUZZ_EXPECT(again->index() == message->index());
  FUZZ_EXPECT(
      fuzz::SameBytes(Flatten(*EncodeControl(*again, fuzz::Pool()), fuzz::Pool()).bytes(), once.bytes()));
  return 0;
}
