// Operations of slots and their confirmations: what is well formed comes through whole, nothing else
// does, and no length makes the reader leave the frame.
#include "wire/replica.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "base/random.h"
#include "wire/body_layout.h"
#include "wire/wire_samples.h"

namespace cairn::wire {
namespace {

class Replica : public ::testing::Test {
 protected:
  static constexpr size_t kPushBytes = sizeof(OpHeader) + sizeof(PushParams) + 3 * 8 + 8 + 16;
  static constexpr size_t kCloseBytes = sizeof(OpHeader) + 24;
  static constexpr size_t kHashBytes = sizeof(OpHeader);

  InFrame Sent(const Frame& frame) {
    return std::move(Parse(Flatten(frame, pool).bytes(), kMaxBodyBytes, pool)).value();
  }
  InFrame SampleFrame() {
    OpBatch batch(pool);
    AddSampleOps(batch);
    return Sent(*batch.Take(17, 10, 41));
  }
  static Result<std::vector<OpView>> ReadAll(std::span<const std::byte> body) {
    std::vector<OpView> all;
    OpReader reader(body);
    for (OpView op; reader.Next(&op);) all.push_back(op);
    EXPECT_EQ(CheckOps(body), reader.status());
    if (!reader.status().ok()) return reader.status();
    return all;
  }
  // The body of one push, with its header or its parameters changed.
  Result<OpView> Changed(const std::function<void(OpHeader&, PushParams&)>& change,
                         OpKind kind = OpKind::kPush) {
    OpBatch batch(pool);
    OpHeader op;
    PushParams params;
    op.kind = kind;
    const std::byte mask[8] = {std::byte{1}}, payload[16] = {};
    const uint64_t keys[] = {1, 2};
    if (kind == OpKind::kPush) {
      batch.Add(op, &params, keys, mask, payload);
    } else {
      batch.Add(op, nullptr, {}, {}, payload);
    }
    InFrame in = Sent(*batch.Take(1, 1, 1));
    std::byte* at = in.storage.data();
    std::memcpy(&op, at, sizeof(op));
    change(op, params);
    std::memcpy(at, &op, sizeof(op));
    params.mask_bytes = params.mask_bytes == 0 ? 8 : params.mask_bytes;
    if (kind == OpKind::kPush) std::memcpy(at + sizeof(op), &params, sizeof(params));
    kept = std::move(in);
    return ParseOp(kept.body());
  }

  BufferPool pool;
  InFrame kept;
};

TEST_F(Replica, EveryFieldOfEveryOperationComesThrough) {
  const InFrame in = SampleFrame();
  EXPECT_EQ(in.header.type, FrameType::kReplicate);
  EXPECT_EQ(in.header.request_id, 17u);
  EXPECT_EQ(in.header.incarnation, 10u);
  EXPECT_EQ(in.header.state_version, 41u);
  const auto ops = ReadAll(in.body());
  ASSERT_TRUE(ops.ok()) << ops.status().ToString();
  ASSERT_EQ(ops->size(), 3u);
  const OpView& push = (*ops)[0];
  EXPECT_EQ(push.header.kind, OpKind::kPush);
  EXPECT_EQ(push.header.slot, 200u);
  EXPECT_EQ(push.header.table, 4u);
  EXPECT_EQ(push.header.epoch, 3u);
  EXPECT_EQ(push.header.index, 50u);
  EXPECT_EQ(push.header.committed, 49u);
  EXPECT_EQ(push.header.a, 12u);
  EXPECT_EQ(push.header.b, 9u);
  EXPECT_EQ(push.params.hyper().lr, 0.125);
  EXPECT_EQ(push.params.step, 77u);
  EXPECT_EQ(push.params.value_scale, 0x1p-16);
  EXPECT_EQ(push.params.mask_bytes, 2u) << "the operation's own";
  EXPECT_EQ(std::vector<uint64_t>(push.keys.begin(), push.keys.end()),
            (std::vector<uint64_t>{11, 0xFFFFFFFFFFFFFFFF, 13}));
  ASSERT_EQ(push.mask.size(), 2u);
  EXPECT_EQ(push.mask[0], std::byte{0xFD});
  ASSERT_EQ(push.payload.size(), 12u);
  EXPECT_EQ(reinterpret_cast<const float*>(push.payload.data())[2], 3.0f);
  EXPECT_EQ(push.raw.size(), kPushBytes);
  const OpView& close = (*ops)[1];
  EXPECT_EQ(close.header.kind, OpKind::kClose);
  EXPECT_EQ(close.header.slot, 2u);
  EXPECT_STREQ(reinterpret_cast<const char*>(close.payload.data()), "sums and contributors");
  EXPECT_EQ(close.raw.size(), kCloseBytes);
  const OpView& hash = (*ops)[2];
  EXPECT_EQ(hash.header.kind, OpKind::kHash);
  EXPECT_EQ(hash.header.a, 0x99AABBCCDDEEFF01u);
  EXPECT_EQ(hash.header.b, 41u);
  EXPECT_TRUE(hash.payload.empty());
  EXPECT_EQ(in.body().size(), kPushBytes + kCloseBytes + kHashBytes);
}

TEST_F(Replica, HeadersLieWhereTheSpecificationSaysTheyDo) {
  EXPECT_EQ(offsetof(OpHeader, bytes), 0u);
  EXPECT_EQ(offsetof(OpHeader, kind), 4u);
  EXPECT_EQ(offsetof(OpHeader, slot), 8u);
  EXPECT_EQ(offsetof(OpHeader, table), 12u);
  EXPECT_EQ(offsetof(OpHeader, epoch), 16u);
  EXPECT_EQ(offsetof(OpHeader, index), 24u);
  EXPECT_EQ(offsetof(OpHeader, committed), 32u);
  EXPECT_EQ(offsetof(OpHeader, a), 40u);
  EXPECT_EQ(offsetof(OpHeader, b), 48u);
  EXPECT_EQ(offsetof(OpHeader, key_count), 56u);
  EXPECT_EQ(offsetof(OpHeader, mask_bytes), 60u);
  EXPECT_EQ(offsetof(OpHeader, payload_bytes), 64u);
}

TEST_F(Replica, AnOperationCanBeKeptAndSentOnUnderAnotherEpoch) {
  const InFrame in = SampleFrame();
  const auto ops = ReadAll(in.body());
  OpBatch batch(pool);
  for (const OpView& op : *ops) {
    const std::vector<std::byte> raw(op.raw.begin(), op.raw.end());
    batch.AddRaw(raw, 8, 33);
  }
  const InFrame again = Sent(*batch.Take(1, 1, 1));
  const auto sent_on = ReadAll(again.body());
  ASSERT_TRUE(sent_on.ok());
  ASSERT_EQ(sent_on->size(), ops->size());
  for (size_t i = 0; i < ops->size(); ++i) {
    OpHeader then = (*ops)[i].header;
    then.epoch = 8, then.committed = 33;
    EXPECT_EQ(std::memcmp(&then, &(*sent_on)[i].header, sizeof(then)), 0) << i;
    const auto rest = (*ops)[i].raw.subspan(sizeof(OpHeader));
    ASSERT_EQ((*sent_on)[i].raw.size(), (*ops)[i].raw.size());
    EXPECT_EQ(std::memcmp(rest.data(), (*sent_on)[i].raw.data() + sizeof(OpHeader), rest.size()), 0) << i;
  }
}

TEST_F(Replica, ABatchIsEmptyAfterItWasTakenAndGrowsAsNeeded) {
  OpBatch batch(pool);
  EXPECT_TRUE(batch.empty());
  OpHeader op;
  op.kind = OpKind::kChunk;
  const std::vector<std::byte> chunk(1000, std::byte{7});
  for (uint32_t i = 0; i < 100; ++i) {
    op.slot = i;
    batch.Add(op, nullptr, {}, {}, chunk);
  }
  EXPECT_EQ(batch.bytes(), 100 * (sizeof(OpHeader) + 1000));
  const InFrame in = Sent(*batch.Take(1, 1, 1));
  EXPECT_TRUE(batch.empty());
  EXPECT_EQ(batch.bytes(), 0u);
  const auto ops = ReadAll(in.body());
  ASSERT_EQ(ops->size(), 100u);
  for (uint32_t i = 0; i < 100; ++i) {
    EXPECT_EQ((*ops)[i].header.slot, i);
    EXPECT_EQ(std::memcmp((*ops)[i].payload.data(), chunk.data(), chunk.size()), 0);
  }
  const InFrame nothing = Sent(*batch.Take(2, 1, 1));
  EXPECT_TRUE(nothing.body().empty());
  EXPECT_TRUE(ReadAll(nothing.body())->empty());
}

// A large payload is sent from where it lies: the bytes on the wire are those of a copy.
TEST_F(Replica, WhatIsLentIsSentAsIfItHadBeenCopied) {
  auto keep = std::make_shared<Buffer>(pool.Get(100'000));
  for (size_t i = 0; i < keep->size(); ++i) keep->data()[i] = static_cast<std::byte>(i * 7 + i / 251);
  const std::span<const std::byte> all = std::as_const(*keep).bytes();
  const std::vector<uint64_t> keys = {3, 5, 8};
  OpBatch copied(pool), lent(pool);
  const auto add = [&](OpBatch& batch, const std::shared_ptr<const Buffer>& lender) {
    PushParams params;
    OpHeader push;
    push.kind = OpKind::kPush;
    batch.Add(push, &params, keys, {}, all.first(20'004), lender);  // not a multiple of 8
    batch.Add(push, &params, {}, {}, all.subspan(30'000, 12), lender);
    batch.Add(push, &params, keys, {}, all.subspan(40'000, 16'000), lender);
    batch.Add(push, &params, {}, {}, all.subspan(60'000, 30'000), lender);
  };
  add(copied, nullptr);
  add(lent, keep);
  EXPECT_EQ(lent.bytes(), copied.bytes());
  const FramePtr one = copied.Take(9, 4, 2), other = lent.Take(9, 4, 2);
  EXPECT_TRUE(lent.empty());
  EXPECT_GT(other->values.size(), 4u);
  keep.reset();  // the frame keeps it
  const Buffer flat = Flatten(*one, pool), flat_lent = Flatten(*other, pool);
  const auto body = [](const Buffer& b) { return b.bytes().subspan(sizeof(FrameHeader)); };
  EXPECT_TRUE(std::ranges::equal(body(flat), body(flat_lent)));
  const auto parsed = Parse(flat_lent.bytes(), kMaxBodyBytes, pool);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_TRUE(CheckOps(parsed->body()).ok());
}

TEST_F(Replica, TheLargestOperationFitsBehindSmallOnes) {
  OpBatch batch(pool);
  OpHeader op;
  op.kind = OpKind::kChunk;
  const Buffer large = pool.Get(kMaxBodyBytes);
  batch.Add(op, nullptr, {}, {}, large.bytes().first(kOpRoom / 2));
  batch.Add(op, nullptr, {}, {}, large.bytes());
  const FramePtr frame = batch.Take(1, 1, 1);
  EXPECT_TRUE(CheckHeader(frame->header(), kMaxBodyBytes).ok());
}

// Where the body ends between two operations it is shorter, and good; anywhere else it is refused.
TEST_F(Replica, TruncatedAtEveryByte) {
  InFrame in = SampleFrame();
  for (size_t n = in.storage.size(); n-- > 0;) {
    in.storage.Resize(n);
    const auto ops = ReadAll(in.body());
    const bool whole = n == 0 || n == kPushBytes || n == kPushBytes + kCloseBytes;
    EXPECT_EQ(ops.ok(), whole) << n;
    EXPECT_EQ(ops.status().code(), whole ? Code::kOk : Code::kProtocol);
  }
}

// The checksum does not stand between a hostile peer and the reader: it must hold on its own. What is
// read has its parts within the body, and is what would be written for them.
TEST_F(Replica, FlippedBitsNeverLeaveTheFrame) {
  const InFrame good = SampleFrame();
  uint32_t refused = 0;
  for (size_t bit = 0; bit < good.body().size() * 8; ++bit) {
    InFrame in = SampleFrame();
    in.storage.data()[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    const auto ops = ReadAll(in.body());
    if (!ops.ok()) {
      ++refused;
      continue;
    }
    OpBatch batch(pool);
    for (const OpView& op : *ops)
      batch.Add(op.header, op.header.kind == OpKind::kPush ? &op.params : nullptr, op.keys, op.mask,
                op.payload);
    const InFrame again = Sent(*batch.Take(1, 1, 1));
    ASSERT_EQ(again.body().size(), in.body().size()) << bit;
    ASSERT_EQ(std::memcmp(again.body().data(), in.body().data(), in.body().size()), 0) << bit;
  }
  // Lengths, reserved fields and padding are more than a sixth of the sample.
  EXPECT_GT(refused, good.body().size() * 8 / 6);
}

TEST_F(Replica, RandomDamageNeverCrashes) {
  const uint64_t seed = 20240607;
  SCOPED_TRACE(seed);
  Random random(seed);
  InFrame in = SampleFrame();
  for (int i = 0; i < 20'000; ++i) {
    if (i % 20 == 0) in = SampleFrame();
    in.storage.data()[random.Below(in.storage.size())] = static_cast<std::byte>(random.Next());
    (void)ReadAll(in.body());
  }
}

TEST_F(Replica, LengthsThatDoNotFitOrOverflowAreRefused) {
  constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max();
  const auto refused = [&](const std::function<void(OpHeader&)>& change) {
    return !Changed([&](OpHeader& op, PushParams&) { change(op); }).ok();
  };
  EXPECT_FALSE(refused([](OpHeader&) {}));
  for (const uint32_t wrong : {0u, 8u, 71u, 72u, 199u, kMost, kMost - 7})
    EXPECT_TRUE(refused([=](OpHeader& op) { op.bytes = wrong; })) << wrong;
  EXPECT_TRUE(refused([](OpHeader& op) { op.key_count = 3; }));
  EXPECT_TRUE(refused([](OpHeader& op) { op.key_count = 3, op.bytes += 8; })) << "beyond the body";
  EXPECT_TRUE(refused([](OpHeader& op) { op.key_count = 1; }));
  EXPECT_TRUE(refused([](OpHeader& op) { op.key_count = 0x20000002; })) << "2 · 8 in 32 bits";
  EXPECT_TRUE(refused([](OpHeader& op) { op.key_count = kMost; }));
  EXPECT_TRUE(refused([](OpHeader& op) { op.mask_bytes = kMost; }));
  EXPECT_TRUE(refused([](OpHeader& op) { op.payload_bytes = kMost; }));
  EXPECT_TRUE(refused([](OpHeader& op) { op.payload_bytes = kMost - 7, op.bytes += kMost - 7 - 16; }));
  EXPECT_TRUE(refused([](OpHeader& op) { op.key_count = op.mask_bytes = op.payload_bytes = kMost; }));
  EXPECT_TRUE(refused([](OpHeader& op) { op.key_count = 4, op.payload_bytes = 0, op.mask_bytes = 16; }));
}

TEST_F(Replica, KindsSlotsReservedFieldsAndParametersAreChecked) {
  using Change = std::function<void(OpHeader&, PushParams&)>;
  const auto refused = [&](const Change& change, OpKind kind = OpKind::kPush) {
    return !Changed(change, kind).ok();
  };
  for (const int kind : {0, 11, 255})
    EXPECT_TRUE(refused([=](OpHeader& op, PushParams&) { op.kind = static_cast<OpKind>(kind); })) << kind;
  EXPECT_TRUE(refused([](OpHeader& op, PushParams&) { op.kind = OpKind::kClose; })) << "no parameters there";
  EXPECT_TRUE(refused([](OpHeader& op, PushParams&) { op.slot = kMaxSlots; }));
  EXPECT_FALSE(refused([](OpHeader& op, PushParams&) { op.slot = kMaxSlots - 1; }));
  EXPECT_TRUE(refused([](OpHeader& op, PushParams&) { op.reserved0 = 1; }));
  EXPECT_TRUE(refused([](OpHeader& op, PushParams&) { op.reserved1 = 1; }));
  EXPECT_TRUE(refused([](OpHeader& op, PushParams&) { op.reserved2 = 1; }));
  const auto close = [&](const Change& change) { return refused(change, OpKind::kClose); };
  EXPECT_FALSE(close([](OpHeader&, PushParams&) {}));
  EXPECT_TRUE(close([](OpHeader& op, PushParams&) { op.key_count = 1, op.payload_bytes = 8; }));
  EXPECT_TRUE(close([](OpHeader& op, PushParams&) { op.mask_bytes = 8, op.payload_bytes = 8; }));
  EXPECT_TRUE(refused([](OpHeader&, PushParams& params) { params.op = 3; }));
  EXPECT_TRUE(refused([](OpHeader&, PushParams& params) { params.op = 1, params.column = kStepColumn + 1; }));
  EXPECT_TRUE(refused([](OpHeader&, PushParams& params) { params.flags = kParamTwoPhase; }));
  EXPECT_TRUE(refused([](OpHeader&, PushParams& params) { params.bitmap_bytes = 8; }));
  EXPECT_TRUE(refused([](OpHeader&, PushParams& params) { params.mask_bytes = 7; }));
  EXPECT_TRUE(refused([](OpHeader&, PushParams& params) { params.reserved[3] = 1; }));
  EXPECT_TRUE(refused([](OpHeader&, PushParams& params) { params.value_scale = 0; }));
}

TEST_F(Replica, PaddingIsZero) {
  InFrame in = SampleFrame();
  const size_t mask_end = sizeof(OpHeader) + sizeof(PushParams) + 3 * 8 + 2;
  for (const size_t at :
       {mask_end, mask_end + 5, kPushBytes - 4, kPushBytes - 1, kPushBytes + kCloseBytes - 1}) {
    in.storage.data()[at] = std::byte{1};
    EXPECT_FALSE(ReadAll(in.body()).ok()) << at;
    in.storage.data()[at] = std::byte{0};
    EXPECT_TRUE(ReadAll(in.body()).ok()) << at;
  }
}

TEST_F(Replica, AReaderStopsAtTheFirstBadOperation) {
  InFrame in = SampleFrame();
  in.storage.data()[kPushBytes + offsetof(OpHeader, kind)] = std::byte{99};
  OpReader reader(in.body());
  OpView op;
  EXPECT_TRUE(reader.Next(&op));
  EXPECT_FALSE(reader.Next(&op));
  EXPECT_FALSE(reader.Next(&op));
  EXPECT_EQ(reader.status().message(), "bad frame: replication: unknown operation 99");
}

TEST_F(Replica, ConfirmationsComeThrough) {
  const InFrame plain = Sent(*EncodeReplicaAck(17, {}, 41, pool));
  EXPECT_EQ(plain.header.request_id, 17u);
  EXPECT_EQ(plain.header.state_version, 41u);
  EXPECT_TRUE(DecodeReplicaAck(plain.header, plain.body())->empty());
  const SlotEntry entries[] = {{2, 0, 4}, {kMaxSlots - 1, 0, uint64_t{1} << 60}};
  const InFrame in = Sent(*EncodeReplicaAck(18, entries, 42, pool));
  const auto refused = DecodeReplicaAck(in.header, in.body());
  ASSERT_TRUE(refused.ok());
  ASSERT_EQ(refused->size(), 2u);
  EXPECT_EQ((*refused)[0].slot, 2u);
  EXPECT_EQ((*refused)[0].number, 4u);
  EXPECT_EQ((*refused)[1].slot, kMaxSlots - 1);
  EXPECT_EQ((*refused)[1].number, uint64_t{1} << 60);
}

TEST_F(Replica, ConfirmationsThatDoNotFitAreRefused) {
  const SlotEntry entries[] = {{2, 0, 4}, {9, 0, 5}};
  InFrame in = Sent(*EncodeReplicaAck(18, entries, 42, pool));
  const auto ok = [&in] { return DecodeReplicaAck(in.header, in.body()).ok(); };
  for (const uint32_t count : {0u, 1u, 3u, 0x10000002u, 0xFFFFFFFFu}) {
    in.header.entry_count = count;
    EXPECT_FALSE(ok()) << count;
  }
  in.header.entry_count = 2;
  EXPECT_TRUE(ok());
  auto* second = reinterpret_cast<SlotEntry*>(in.storage.data()) + 1;
  for (const uint32_t slot : {2u, 1u, kMaxSlots}) {
    second->slot = slot;
    EXPECT_FALSE(ok()) << slot;
  }
  second->slot = 9;
  in.header.type = FrameType::kPushReply;
  EXPECT_FALSE(ok());
  in.header.type = FrameType::kReplicaAck;
  for (size_t n = 31;; --n) {
    in.storage.Resize(n);
    in.header.body_bytes = static_cast<uint32_t>(n);
    EXPECT_FALSE(ok()) << n;
    if (n == 0) break;
  }
}

TEST_F(Replica, OnOneHostTheHeaderAloneIsChecked) {
  for (const OpBatch::Body body : {OpBatch::Body::kChecked, OpBatch::Body::kUnchecked}) {
    OpBatch batch(pool);
    OpHeader op;
    op.kind = OpKind::kChunk;
    const std::vector<std::byte> payload(100, std::byte{1});
    batch.Add(op, nullptr, {}, {}, payload);
    Buffer bytes = Flatten(*batch.Take(1, 1, 1, body), pool);
    ASSERT_TRUE(Parse(bytes.bytes(), kMaxBodyBytes, pool).ok());
    bytes.data()[sizeof(FrameHeader) + sizeof(OpHeader) + 5] ^= std::byte{1};
    EXPECT_EQ(Parse(bytes.bytes(), kMaxBodyBytes, pool).ok(), body == OpBatch::Body::kUnchecked);
    bytes.data()[sizeof(FrameHeader) + sizeof(OpHeader) + 5] ^= std::byte{1};
    bytes.data()[offsetof(FrameHeader, request_id)] ^= std::byte{1};
    EXPECT_FALSE(Parse(bytes.bytes(), kMaxBodyBytes, pool).ok());
  }
}

}  // namespace
}  // namespace cairn::wire
