// The data path takes no memory: decoders none at all, encoders only what the pool lends, and frames
// that are recycled. Counted by replacing operator new for this test program.
#include <gtest/gtest.h>

#include <utility>

#include "base/counting_new_testing.h"
#include "wire/data.h"
#include "wire/wire_samples.h"

namespace cairn::wire {
namespace {

TEST(Allocation, DecodersTakeNone) {
  BufferPool pool;
  for (const NamedFrame& sample : SampleData(pool)) {
    Result<InFrame> in = Parse(Flatten(*sample.frame, pool).bytes(), kMaxBodyBytes, pool);
    ASSERT_TRUE(in.ok());
    const FrameHeader& header = in->header;
    PushReplyView refusal;
    const long before = allocations;
    bool ok = CheckHeader(header, kMaxBodyBytes).ok() && CheckBody(header, in->body()).ok();
    switch (header.type) {
      case FrameType::kPush:
      case FrameType::kContribute:
      case FrameType::kDone: ok = ok && DecodePush(header, in->body()).ok(); break;
      case FrameType::kPull: ok = ok && DecodePull(header, in->body()).ok(); break;
      case FrameType::kPushReply: ok = ok && DecodePushReply(header, in->body()).ok(); break;
      case FrameType::kError: ok = ok && DecodeError(header, in->body()).ok(); break;
      case FrameType::kClock:
      case FrameType::kClockReply: break;  // a header alone
      default:
        ok =
            ok && (DecodeRoundRefusal(header, in->body(), &refusal) || DecodeValues(header, in->body()).ok());
    }
    EXPECT_EQ(allocations, before) << sample.name;
    EXPECT_TRUE(ok) << sample.name;
  }
}

TEST(Allocation, OperationsAreReadWhereTheyLie) {
  BufferPool pool;
  for (const NamedFrame& sample : SampleReplication(pool)) {
    Result<InFrame> in = Parse(Flatten(*sample.frame, pool).bytes(), kMaxBodyBytes, pool);
    ASSERT_TRUE(in.ok());
    const long before = allocations;
    OpReader reader(in->header.type == FrameType::kReplicate ? in->body() : std::span<const std::byte>());
    OpView op;
    while (reader.Next(&op)) {
    }
    const bool ok = reader.status().ok() && (in->header.type == FrameType::kReplicate ||
                                             DecodeReplicaAck(in->header, in->body()).ok());
    EXPECT_EQ(allocations, before) << sample.name;
    EXPECT_TRUE(ok) << sample.name;
  }
}

TEST(Allocation, EncodersTakeNoneOnceWarm) {
  if (!kRecycles) GTEST_SKIP() << "a sanitizer sees every block";
  BufferPool pool;
  FrameHeader request;
  const SlotEntry entries[] = {{1, 4, 1}, {2, 4, 1}};
  const auto encode = [&] {
    DataParts parts;
    parts.type = FrameType::kPullReply;
    parts.entries = entries;
    parts.owned = pool.Get(32);
    const FramePtr values = EncodeData(std::move(parts), pool);
    const FramePtr reply = EncodePushReply(request, {}, "", pool);
    return values->bytes() + reply->bytes();
  };
  const size_t bytes = encode();
  const long before = allocations;
  EXPECT_EQ(encode(), bytes);
  EXPECT_EQ(allocations, before);
}

TEST(Allocation, EncodersUseThePoolAgain) {
  BufferPool pool;
  (void)SampleData(pool);
  (void)SampleReplication(pool);
  const size_t warm = pool.allocated_bytes();
  (void)SampleData(pool);
  (void)SampleReplication(pool);
  EXPECT_EQ(pool.allocated_bytes(), warm);
}

}  // namespace
}  // namespace cairn::wire
