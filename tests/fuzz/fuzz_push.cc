// kPush, kContribute, kDone: what decodes encodes to the same bytes.
#include "fuzz/frame_input.h"
#include "wire/data.h"

using namespace cairn;
using namespace cairn::wire;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  InFrame in;
  if (!fuzz::TakeFrame(data, size, {FrameType::kPush, FrameType::kContribute, FrameType::kDone}, &in))
    return 0;
  const Result<PushView> view = DecodePush(in.header, in.body());
  if (!view.ok()) return 0;
  uint64_t sum = 0;
  for (const SlotEntry& entry : view->entries) sum += entry.count;
  FUZZ_EXPECT(view->keys.empty() || sum == view->keys.size());
  DataParts parts;
  fuzz::CopyHeader(in.header, &parts);
  parts.params = &view->params;
  parts.entries = view->entries;
  parts.done_bitmap = view->done_bitmap;
  parts.mask = view->mask;
  parts.keys = view->keys;
  parts.values = {view->values};
  fuzz::ExpectSameFrame(*EncodeData(std::move(parts), fuzz::Pool()), in);
  return 0;
}
