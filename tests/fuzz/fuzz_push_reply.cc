// kPushReply, and the RoundReply that refuses: what decodes encodes to the same body.
#include "fuzz/frame_input.h"
#include "wire/data.h"

using namespace cairn;
using namespace cairn::wire;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  InFrame in;
  if (!fuzz::TakeFrame(data, size, {FrameType::kPushReply, FrameType::kRoundReply}, &in)) return 0;
  const Result<PushReplyView> reply = DecodePushReply(in.header, in.body());
  if (reply.ok()) {
    fuzz::ExpectSameBody(*EncodePushReply(in.header, reply->entries, reply->text, fuzz::Pool()), in);
  }
  PushReplyView refusal;
  if (DecodeRoundRefusal(in.header, in.body(), &refusal)) {
    FUZZ_EXPECT(!DecodeValues(in.header, in.body()).ok());
    fuzz::ExpectSameBody(*EncodeRoundRefusal(in.header, refusal.entries, refusal.text, fuzz::Pool()), in);
  }
  return 0;
}
