// kPullReply and kRoundReply with values: what decodes encodes to the same bytes.
#include "fuzz/frame_input.h"
#include "wire/data.h"

using namespace cairn;
using namespace cairn::wire;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  InFrame in;
  if (!fuzz::TakeFrame(data, size, {FrameType::kPullReply, FrameType::kRoundReply}, &in)) return 0;
  const Result<ValuesView> view = DecodeValues(in.header, in.body());
  if (!view.ok()) return 0;
  DataParts parts;
  fuzz::CopyHeader(in.header, &parts);
  parts.entries = view->entries;
  parts.values = {view->values};
  fuzz::ExpectSameFrame(*EncodeData(std::move(parts), fuzz::Pool()), in);
  return 0;
}
