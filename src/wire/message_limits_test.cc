// Bounds of what messages may carry, and what is kept where it goes from one hand to the next.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <set>
#include <string>

#include "wire/body_layout.h"
#include "wire/coding.h"
#include "wire/control.h"
#include "wire/replica.h"
#include "wire/stalled_rounds.h"
#include "wire/state_codec.h"
#include "wire/wire_samples.h"

namespace cairn::wire {
namespace {

class MessageLimits : public ::testing::Test {
 protected:
  Result<ControlMessage> Through(const ControlMessage& message) {
    auto in = Parse(Flatten(*EncodeControl(message, pool), pool).bytes(), kMaxBodyBytes, pool);
    if (!in.ok()) return in.status();
    return DecodeControl(in->header, in->body());
  }
  template <class Message>
  bool Comes(const Message& message) {
    return Through(message).ok();
  }
  // A message that our encoder would not make.
  bool Foreign(flatbuffers::FlatBufferBuilder& b, fb::Message type, flatbuffers::Offset<void> message) {
    b.Finish(fb::CreateControl(b, type, message), kControlIdentifier);
    Buffer body = pool.Get(b.GetSize());
    std::memcpy(body.data(), b.GetBufferPointer(), b.GetSize());
    FrameHeader header;
    header.body_bytes = b.GetSize();
    return DecodeControl(header, body.bytes()).ok();
  }
  BufferPool pool;
};

TEST_F(MessageLimits, AHeartbeatNamesAFewOfEach) {
  Heartbeat at_most;
  at_most.hot_rows.resize(kMaxHotRows);
  at_most.sampled.resize(kMaxSampledTables);
  at_most.stalled.resize(kMaxStalledRounds);
  for (StalledRound& round : at_most.stalled) round.missing_ranks.resize(kMaxMissingNamed);
  at_most.staleness.resize(kStalenessKinds);
  EXPECT_TRUE(Comes(at_most));
  const auto with = [&](auto change) {
    Heartbeat more = at_most;
    change(more);
    return Comes(more);
  };
  EXPECT_FALSE(with([](Heartbeat& h) { h.hot_rows.emplace_back(); }));
  EXPECT_FALSE(with([](Heartbeat& h) { h.sampled.emplace_back(); }));
  EXPECT_FALSE(with([](Heartbeat& h) { h.stalled.emplace_back(); }));
  EXPECT_FALSE(with([](Heartbeat& h) { h.staleness.emplace_back(); }));
  EXPECT_FALSE(with([](Heartbeat& h) { h.stalled.back().missing_ranks.push_back(1); }));
}

TEST_F(MessageLimits, WorkIsSaidOfEverySlotOrOfNone) {
  for (const size_t pulled_of : {1, 2}) {
    flatbuffers::FlatBufferBuilder b;
    const std::vector<fb::SlotLoad> one(1, fb::SlotLoad(1, 1, 0));
    const auto loads = b.CreateVectorOfStructs(one);
    const auto pushed = b.CreateVector(std::vector<uint64_t>(1));
    const auto pulled = b.CreateVector(std::vector<uint64_t>(pulled_of));
    fb::HeartbeatBuilder heartbeat(b);
    heartbeat.add_loads(loads), heartbeat.add_pushed(pushed), heartbeat.add_pulled(pulled);
    EXPECT_EQ(Foreign(b, fb::Message::Heartbeat, heartbeat.Finish().Union()), pulled_of == 1);
  }
}

TEST_F(MessageLimits, TablesAtOnce) {
  CreateTables tables{1, Incarnation{7},
                      std::vector<TableSpec>(kMaxTablesAtOnce, TableSpec{.name = "t", .size = 1})};
  EXPECT_TRUE(Comes(tables));
  tables.specs.push_back(tables.specs[0]);
  EXPECT_FALSE(Comes(tables));
  tables.specs.clear();
  EXPECT_FALSE(Comes(tables));
}

TEST_F(MessageLimits, TextsAreCutBySendersAndRefusedFromOthers) {
  const std::string text(kMaxTextBytes + 1, 'x');
  const auto waiting = Through(StillWaiting{1, TableId{1}, Round{0}, {}, text});
  ASSERT_TRUE(waiting.ok()) << waiting.status().ToString();
  EXPECT_EQ(std::get<StillWaiting>(*waiting).waits_for.size(), kMaxTextBytes);
  const auto abort = Through(AbortJob{text});
  ASSERT_TRUE(abort.ok());
  EXPECT_EQ(std::get<AbortJob>(*abort).reason.size(), kMaxTextBytes);
  flatbuffers::FlatBufferBuilder b, d;
  EXPECT_FALSE(Foreign(b, fb::Message::AbortJob, fb::CreateAbortJob(b, b.CreateString(text)).Union()));
  const auto who = d.CreateString(text);
  EXPECT_FALSE(Foreign(d, fb::Message::StillWaiting, fb::CreateStillWaiting(d, 1, 1, 0, 0, who).Union()));
}

TEST_F(MessageLimits, SegmentsOfATable) {
  ClusterState state = SampleState();
  TableSpec& spec = state.tables[0].spec;
  spec.segments.resize(kMaxSegments);
  std::iota(spec.segments.begin(), spec.segments.end(), uint64_t{1});
  spec.size = kMaxSegments;
  EXPECT_TRUE(DecodeState(EncodeState(state)).ok());
  spec.segments.push_back(++spec.size);
  EXPECT_FALSE(DecodeState(EncodeState(state)).ok());
}

// What a scheduler says to nobody but those that have registered.
TEST_F(MessageLimits, MessagesForNodes) {
  const std::set<std::string> for_nodes = {"Registered", "HeartbeatReply", "StateMessage",
                                           "StateDelta", "TableReply",     "LeaveReply"};
  for (const ControlMessage& message : SampleControl())
    EXPECT_EQ(IsForNodes(*EncodeControl(message, pool)), for_nodes.contains(Name(message))) << Name(message);
  EXPECT_FALSE(IsForNodes(*SampleData(pool)[0].frame));
}

TEST_F(MessageLimits, ADoneMarkHasNoMaskAndNoValues) {
  const PushParams params;
  const SlotEntry entry{1, 2, 0};
  const std::byte mask{1};
  for (int what = 0; what < 3; ++what) {
    DataParts parts = SampleParts(FrameType::kContribute);
    parts.params = &params, parts.entries = {&entry, 1};
    if (what == 1) parts.mask = {&mask, 1};
    if (what == 2) parts.owned = SampleFloats(2, pool);
    FramePtr frame = EncodeData(std::move(parts), pool);
    frame->header().type = FrameType::kDone;
    Seal(*frame);
    auto in = Parse(Flatten(*frame, pool).bytes(), kMaxBodyBytes, pool);
    ASSERT_TRUE(in.ok());
    EXPECT_EQ(DecodePush(in->header, in->body()).ok(), what == 0) << what;
  }
}

TEST_F(MessageLimits, AReplyWithoutProblemsHasNoText) {
  const FramePtr reply = EncodePushReply(FrameHeader{}, {}, "nothing is wrong", pool);
  EXPECT_EQ(reply->header().body_bytes, 0u);
}

TEST_F(MessageLimits, TransientValuesAreCopiedOnceAndKept) {
  std::vector<float> values = {1, 2, 3, 4, 5};
  const PushParams params;
  const SlotEntry entry{1, 5, 0};
  DataParts parts = SampleParts(FrameType::kPush);
  parts.params = &params, parts.entries = {&entry, 1};
  parts.values = {std::as_bytes(std::span(values))};
  parts.transient = true;
  const FramePtr frame = EncodeData(std::move(parts), pool);
  EXPECT_TRUE(frame->transient);
  KeepValues(*frame, pool);
  EXPECT_FALSE(frame->transient);
  const std::byte* const kept = frame->values[0].data();
  EXPECT_NE(kept, std::as_bytes(std::span(values)).data());
  KeepValues(*frame, pool);
  EXPECT_EQ(frame->values[0].data(), kept);
}

TEST_F(MessageLimits, ReservedBytesOfACodedBodyAreZero) {
  const FramePtr coded = SampleCoded(pool)[0].frame;
  for (const bool reserved : {false, true}) {
    coded->head.data()[sizeof(FrameHeader) + 8] = reserved ? std::byte{1} : std::byte{0};
    Seal(*coded);
    auto in = Parse(Flatten(*coded, pool).bytes(), kMaxBodyBytes, pool);
    ASSERT_TRUE(in.ok());
    EXPECT_EQ(DecodeFrame(&*in, kMaxBodyBytes, pool).ok(), !reserved);
  }
}

TEST_F(MessageLimits, TheSameOperationIsItsContentNotItsCircumstances) {
  const auto raw = [&](auto change, uint8_t payload) {
    OpHeader op;
    op.kind = OpKind::kClose;
    op.slot = 2, op.table = 4, op.epoch = 3, op.index = 51, op.committed = 50, op.a = 91;
    change(op);
    const std::vector<std::byte> bytes(24, std::byte{payload});
    OpBatch batch(pool);
    batch.Add(op, nullptr, {}, {}, bytes);
    const Buffer flat = Flatten(*batch.Take(1, 1, 1), pool);
    const auto body = flat.bytes().subspan(sizeof(FrameHeader));
    return std::vector<std::byte>(body.begin(), body.end());
  };
  const auto first = raw([](OpHeader&) {}, 7);
  EXPECT_TRUE(SameOperation(first, first));
  EXPECT_TRUE(SameOperation(first, raw([](OpHeader& o) { o.epoch = 9; }, 7)));
  EXPECT_TRUE(SameOperation(first, raw([](OpHeader& o) { o.committed = 51; }, 7)));
  EXPECT_FALSE(SameOperation(first, raw([](OpHeader& o) { o.index = 52; }, 7)));
  EXPECT_FALSE(SameOperation(first, raw([](OpHeader& o) { o.a = 92; }, 7)));
  EXPECT_FALSE(SameOperation(first, raw([](OpHeader&) {}, 8)));
  EXPECT_FALSE(SameOperation(first, std::span(first).first(first.size() - 8)));
}

TEST_F(MessageLimits, ABatchThatLentIsEmptyAfterItWasTaken) {
  const auto lent = std::make_shared<const Buffer>(pool.Get(16 * 1024));
  OpHeader op;
  op.kind = OpKind::kChunk;
  OpBatch batch(pool);
  batch.Add(op, nullptr, {}, {}, lent->bytes(), lent);
  EXPECT_GT(batch.bytes(), lent->size());
  (void)batch.Take(1, 1, 1);
  EXPECT_TRUE(batch.empty());
  batch.Add(op, nullptr, {}, {}, {});
  EXPECT_EQ(batch.bytes(), sizeof(OpHeader));
}

TEST(StalledRoundsOfMany, AreSortedMergedAndCounted) {
  const auto stalled = [](uint32_t table, uint64_t round, uint32_t missing) {
    return StalledRound{TableId{table}, Round{round}, 1000, missing, {1}};
  };
  std::vector<StalledRound> rounds;
  AddStalled(rounds, stalled(3, 1, 40));
  AddStalled(rounds, stalled(2, 5, 1));
  AddStalled(rounds, stalled(2, 4, 1));
  AddStalled(rounds, stalled(3, 1, 30));  // of another server, which knows of fewer
  ASSERT_EQ(rounds.size(), 3u);
  EXPECT_EQ(rounds[0], stalled(2, 4, 1)) << "of equal waits by table and round";
  EXPECT_EQ(rounds[1], stalled(2, 5, 1));
  EXPECT_EQ(rounds[2], stalled(3, 1, 40)) << "more than are named";
}

}  // namespace
}  // namespace cairn::wire
