// Frames that may be coded (docs/internals/wire-format.md, "Coded frames"): the same message comes out at the
// other end over every transport, in fewer bytes over TCP, as it is through shared memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "contract/peers.h"
#include "wire/data.h"

namespace cairn::transport {
namespace {

class CodedFrames : public ::testing::TestWithParam<PipeKind> {};
INSTANTIATE_TEST_SUITE_P(Over, CodedFrames, ::testing::Values(PipeKind::kTcp, PipeKind::kShm),
                         [](const auto& tested) { return tested.param == PipeKind::kTcp ? "Tcp" : "Shm"; });

TEST_P(CodedFrames, ArriveAsTheyWere) {
  const auto echo = [](Host& host, ConnId conn, wire::InFrame& frame) {
    const wire::FramePtr back = Echo(frame, host.pool);
    back->header().flags |= wire::kFlagValuesChecked;  // the whole body lies where values do
    wire::Seal(*back);
    host.network->Send(conn, back);
  };
  const PipeChoice pipe{.kind = GetParam()};
  Host host(echo, {.pipe = pipe}, {.pipe = pipe});
  Caller caller({.pipe = pipe});
  const ConnId conn = caller.Connect(host.endpoint());
  const auto bytes_out = [&] { return OnLoop(caller.loop, [&] { return caller.network->bytes_out(); }); };
  caller.Send(conn, EmptyFrame(99, caller.pool));  // until it is answered, frames must be small
  (void)caller.messages.Take();
  std::vector<float> values(100'000);
  for (size_t i = 0; i < values.size(); i += 100) values[i] = static_cast<float>(i % 128);
  const std::vector<wire::SlotEntry> entries = {{0, 100'000, 1}};
  const wire::PushParams params;
  uint64_t id = 0, before = bytes_out();
  for (wire::Coding coding : {wire::Coding::kPlain, wire::Coding::kFloat16, wire::Coding::kBfloat16,
                              wire::Coding::kNonZero, wire::Coding::kLz4}) {
    wire::DataParts parts;
    parts.request_id = ++id;
    parts.params = &params;
    parts.entries = entries;
    parts.values = {std::as_bytes(std::span(values))};
    parts.coding = coding;
    const wire::FramePtr frame = wire::EncodeData(std::move(parts), caller.pool);
    caller.Send(conn, frame);
    const wire::InFrame back = caller.messages.Take();
    const Buffer sent = wire::Flatten(*frame, caller.pool);
    ASSERT_EQ(back.header.request_id, id);
    ASSERT_EQ(back.body().size() + sizeof(wire::FrameHeader), sent.size());
    EXPECT_TRUE(std::equal(back.body().begin(), back.body().end(), sent.data() + sizeof(wire::FrameHeader)));
    const uint64_t bytes = bytes_out() - before;
    before += bytes;
    const bool codes = GetParam() == PipeKind::kTcp && coding != wire::Coding::kPlain;
    const size_t most = coding < wire::Coding::kNonZero ? sent.size() * 51 / 100 : sent.size() / 10;
    if (codes) {
      EXPECT_LT(bytes, most);
    } else {
      EXPECT_GE(bytes, sent.size());
    }
  }
}

}  // namespace
}  // namespace cairn::transport
