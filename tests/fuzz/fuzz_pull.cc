// kPull: what decodes encodes to the same bytes.
#include "fuzz/frame_input.h"
#include "wire/data.h"

using namespace cairn;
using namespace cairn::wire;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  InFrame in;
  if (!fuzz::TakeFrame(data, size, {FrameType::kPull}, &in)) return 0;
  const Result<PullView> view = DecodePull(in.header, in.body());
  if (!view.ok()) return 0;
  DataParts parts;
  fuzz::CopyHeader(in.header, &parts);
  parts.entries = view->entries;
  parts.keys = view->keys;
  fuzz::ExpectSameFrame(*EncodeData(std::move(parts), fuzz::Pool()), in);
  return 0;
}
