// kReplicate and kReplicaAck: what decodes encodes to the same bytes, whole or operation by operation.
#include <vector>

#include "fuzz/frame_input.h"
#include "wire/replica.h"

using namespace cairn;
using namespace cairn::wire;

namespace {

void Replicate(const InFrame& in) {
  OpBatch whole(fuzz::Pool()), raw(fuzz::Pool());
  OpReader reader(in.body());
  size_t read = 0;
  for (OpView op; reader.Next(&op);) {
    FUZZ_EXPECT(op.raw.data() == in.body().data() + read);
    read += op.raw.size();
    whole.Add(op.header, op.header.kind == OpKind::kPush ? &op.params : nullptr, op.keys, op.mask,
              op.payload);
    const std::vector<std::byte> kept(op.raw.begin(), op.raw.end());
    FUZZ_EXPECT(ParseOp(kept).ok());
    raw.AddRaw(kept, op.header.epoch, op.header.committed);
  }
  FUZZ_EXPECT(reader.status().ok() == (read == in.body().size()));
  if (!reader.status().ok()) return;
  const FrameHeader& header = in.header;
  fuzz::ExpectSameBody(*whole.Take(header.request_id, header.incarnation, header.state_version), in);
  fuzz::ExpectSameBody(*raw.Take(header.request_id, header.incarnation, header.state_version), in);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  InFrame in;
  if (!fuzz::TakeFrame(data, size, {FrameType::kReplicate, FrameType::kReplicaAck}, &in)) return 0;
  if (in.header.type == FrameType::kReplicate) {
    Replicate(in);
  } else if (const auto refused = DecodeReplicaAck(in.header, in.body()); refused.ok()) {
    fuzz::ExpectSameBody(
        *EncodeReplicaAck(in.header.request_id, *refused, in.header.state_version, fuzz::Pool()), in);
  }
  return 0;
}
