// kError: what decodes encodes to the same body.
#include <string>

#include "fuzz/frame_input.h"
#include "wire/data.h"

using namespace cairn;
using namespace cairn::wire;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  InFrame in;
  if (!fuzz::TakeFrame(data, size, {FrameType::kError}, &in)) return 0;
  const Result<ErrorView> view = DecodeError(in.header, in.body());
  if (!view.ok()) return 0;
  fuzz::ExpectSameBody(*EncodeError(in.header, Status(view->code, std::string(view->text)), fuzz::Pool()),
                       in);
  return 0;
}
