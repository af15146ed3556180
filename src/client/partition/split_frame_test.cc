// A cut frame says the same as the whole one, slot by slot, and its replies go to the same places.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "client/partition/partition_reader_testing.h"
#include "client/partition/scatter.h"
#include "client/partition/split_frame.h"

namespace cairn::client {
namespace {

constexpr uint32_t kSlotCount = 24;

// One slot's part of a frame.
struct SlotPart {
  uint32_t count = 0;
  uint64_t number = 0;
  std::vector<uint64_t> keys;
  std::vector<std::byte> values;
  bool operator==(const SlotPart&) const = default;
};
std::map<uint32_t, SlotPart> BySlot(const Seen& seen) {
  uint64_t units = 0;
  for (const wire::SlotEntry& entry : seen.entries) units += entry.count;
  const size_t width = units == 0 ? 0 : seen.values.size() / units;
  std::map<uint32_t, SlotPart> slots;
  size_t at = 0;
  for (const wire::SlotEntry& entry : seen.entries) {
    SlotPart& part = slots[entry.slot];
    part.count = entry.count;
    part.number = entry.number;
    if (!seen.keys.empty()) {
      part.keys.assign(seen.keys.begin() + at, seen.keys.begin() + at + entry.count);
    }
    part.values.assign(seen.values.begin() + at * width, seen.values.begin() + (at + entry.count) * width);
    at += entry.count;
  }
  return slots;
}

class SplitTest : public ::testing::Test {
 protected:
  SplitTest()
      : before(StateOf(3, 2, kSlotCount, random)),
        after(StateOf(4, 2, kSlotCount, random)),
        dense{TableId{1}, {.name = "w", .mode = Mode::kSync, .size = 50'000}, {}},
        sparse{TableId{2}, {.name = "e", .kind = TableKind::kSparse, .mode = Mode::kSync, .dim = 3}, {}} {
    dense.spec.segments = {20'000, 50'000};
    after.version = StateVersion{9};
    for (wire::SlotOwner& owner : after.slots) owner.since = StateVersion{6 + random.Below(4)};
    for (uint32_t i = 0; i < 400; ++i) keys.push_back(random.Below(200));  // with repetitions
    gradient.resize(50'000);
    for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>(i);
    rows.assign(gradient.begin(), gradient.begin() + keys.size() * 3);
  }

  // Cuts every part, after it got numbers, and checks the pieces against it. Returns how many
  // pieces there are.
  size_t CutAll(Request request) {
    size_t all = 0;
    for (ShardPart& part : request.parts) {
      if (wire::MutableEntries(*part.frame).empty()) continue;
      part.frame->header().flags |= wire::kFlagTrip;
      if (request.kind == Request::Kind::kPush) {
        for (wire::SlotEntry& entry : wire::MutableEntries(*part.frame)) entry.number = ++number;
      }
      wire::Seal(*part.frame);
      const Seen whole = Read(part, pool);
      wire::FramePtr frame = std::move(part.frame);
      const std::vector<ShardPart> pieces = CutBySlot(frame, part, after, pool);
      CheckPieces(whole, frame, part, pieces);
      CheckReplies(whole, part, pieces);
      const std::weak_ptr<wire::Frame> old = frame;
      frame.reset();
      // Only what is not the caller's has to be kept.
      EXPECT_EQ(old.expired(), part.borrowed || whole.values.empty());
      if (!part.borrowed) CheckValuesLive(whole, pieces);
      all += pieces.size();
    }
    return all;
  }

  void CheckPieces(const Seen& whole, const wire::FramePtr& frame, const ShardPart& part,
                   const std::vector<ShardPart>& pieces) {
    std::map<uint32_t, SlotPart> slots;
    const FrameHome home = HomeOf(*frame, after);
    EXPECT_EQ(home.one, pieces.size() == 1);
    uint64_t newest = 0;
    for (const ShardPart& piece : pieces) {
      wire::Seal(*piece.frame);
      const Seen seen = Read(piece, pool);
      uint64_t since = before.version.value;
      for (const wire::SlotEntry& entry : seen.entries) {
        EXPECT_EQ(after.slots[entry.slot].server, piece.server);
        EXPECT_EQ(after.slots[entry.slot].thread, piece.thread);
        since = std::max(since, after.slots[entry.slot].since.value);
      }
      EXPECT_EQ(seen.header.state_version, since);
      newest = std::max(newest, since);
      EXPECT_EQ(seen.header.type, whole.header.type);
      EXPECT_EQ(seen.header.table, whole.header.table);
      EXPECT_EQ(seen.header.round, whole.header.round);
      EXPECT_EQ(seen.header.flags | wire::kFlagTrip, whole.header.flags | wire::kFlagTrip);
      EXPECT_EQ((seen.header.flags & wire::kFlagTrip) != 0, &piece == pieces.data());
      EXPECT_EQ(seen.bitmap, whole.bitmap);
      EXPECT_EQ(seen.mask, whole.mask);
      EXPECT_EQ(0, std::memcmp(&seen.params, &whole.params, sizeof(seen.params)));
      EXPECT_EQ(piece.borrowed, part.borrowed);
      slots.merge(BySlot(seen));
    }
    EXPECT_EQ(newest, std::max(home.stamp.value, before.version.value));
    EXPECT_EQ(slots, BySlot(whole));
  }

  // The old frame is gone; the buffer pool may have given its memory to others.
  void CheckValuesLive(const Seen& whole, const std::vector<ShardPart>& pieces) {
    std::vector<Buffer> others;
    for (int i = 0; i < 8; ++i) {
      others.push_back(pool.Get(whole.values.size() + 1));
      std::memset(others.back().data(), 0xee, others.back().size());
    }
    std::map<uint32_t, SlotPart> slots;
    for (const ShardPart& piece : pieces) slots.merge(BySlot(Read(piece, pool)));
    EXPECT_EQ(slots, BySlot(whole));
  }

  // The values of a slot are the same whoever sends them; so must be what the caller gets.
  void CheckReplies(const Seen& whole, const ShardPart& part, const std::vector<ShardPart>& pieces) {
    const size_t bytes = ExpectedBytes(part);
    if (bytes == 0) return;
    uint64_t units = 0;
    for (const wire::SlotEntry& entry : whole.entries) units += entry.count;
    const size_t width = bytes / units;
    const auto reply = [&](const std::vector<wire::SlotEntry>& entries) {
      std::vector<std::byte> values;
      for (const wire::SlotEntry& entry : entries) {
        Random of_slot(entry.slot + 1);
        for (size_t i = 0; i < entry.count * width; ++i)
          values.push_back(static_cast<std::byte>(of_slot.Below(256)));
      }
      return values;
    };
    std::vector<std::byte>& to = dense_out.empty() ? sparse_out : dense_out;
    std::fill(to.begin(), to.end(), std::byte{0});
    Scatter(part, reply(whole.entries));
    const std::vector<std::byte> expected = to;
    std::fill(to.begin(), to.end(), std::byte{0});
    for (const ShardPart& piece : pieces) {
      const std::vector<std::byte> values = reply(Read(piece, pool).entries);
      ASSERT_EQ(ExpectedBytes(piece), values.size());
      Scatter(piece, values);
    }
    EXPECT_EQ(to, expected);
  }

  BufferPool pool;
  Random random{11};
  wire::ClusterState before, after;
  wire::TableInfo dense, sparse;
  std::vector<RowKey> keys;
  std::vector<float> gradient, rows;
  std::vector<std::byte> dense_out, sparse_out;  // whichever a test uses
  uint64_t number = 0;
};

TEST_F(SplitTest, NumberedDensePushesWithAMask) {
  dense.spec.mode = Mode::kAsync;
  const std::byte mask{1};
  PartitionInput input{
      .state = &before, .table = &dense, .values = std::as_bytes(std::span(gradient)), .mask = {&mask, 1}};
  Request request = PreparePush(input, pool).value();
  const size_t parts = request.parts.size();
  EXPECT_FALSE(request.parts[0].borrowed);
  EXPECT_FALSE(Read(request.parts[0], pool).mask.empty());
  EXPECT_GT(CutAll(std::move(request)), parts);
}

TEST_F(SplitTest, BorrowedContributionsWithTheNewValues) {
  dense_out.resize(gradient.size() * sizeof(float));
  PartitionInput input{.state = &before,
                       .table = &dense,
                       .values = std::as_bytes(std::span(gradient)),
                       .out = std::span(dense_out),
                       .pull_after = true};
  Request request = PrepareRound(input, pool).value();
  EXPECT_TRUE(request.parts[0].borrowed);
  // Pieces of the caller's array, not copies of it.
  const auto all = std::as_bytes(std::span(gradient));
  wire::FramePtr frame = request.parts[0].frame;
  for (const ShardPart& piece : CutBySlot(frame, request.parts[0], after, pool)) {
    for (std::span<const std::byte> values : piece.frame->values) {
      EXPECT_GE(values.data(), all.data());
      EXPECT_LE(values.data() + values.size(), all.data() + all.size());
    }
  }
  frame.reset();
  CutAll(std::move(request));
}

// A model whose last tensors are not wanted: spans with a size and no memory.
TEST_F(SplitTest, PullsOfPiecesSomeOfWhichAreSkipped) {
  dense_out.resize(gradient.size() * sizeof(float));
  PieceList<std::byte> out;
  out.Add(std::span(dense_out).first(20'000 * sizeof(float)));
  out.Add({static_cast<std::byte*>(nullptr), 30'000 * sizeof(float)});
  PartitionInput input{.state = &before, .table = &dense, .out = out};
  CutAll(PreparePull(input, pool).value());
}

TEST_F(SplitTest, RowsWithRepetitionsBothWays) {
  sparse_out.resize(rows.size() * sizeof(float));
  PartitionInput input{.state = &before,
                       .table = &sparse,
                       .keys = keys,
                       .values = std::as_bytes(std::span(rows)),
                       .out = std::span(sparse_out),
                       .pull_after = true};
  Request request = PrepareRound(input, pool).value();
  size_t repeats = 0;
  for (const ShardPart& part : request.parts) repeats += part.repeats.size();
  EXPECT_GT(repeats, 100u);
  CutAll(std::move(request));
}

TEST_F(SplitTest, PullsOfRows) {
  sparse_out.resize(rows.size() * sizeof(float));
  PartitionInput input{.state = &before, .table = &sparse, .keys = keys, .out = std::span(sparse_out)};
  CutAll(PreparePull(input, pool).value());
}

TEST_F(SplitTest, RequestsForKeys) {
  std::vector<RowKey> got;
  PartitionInput input{.state = &before, .table = &sparse};
  Request request = PrepareKeys(input, &got, pool).value();
  for (const ShardPart& part : request.parts) {
    for (const ShardPart& piece : CutBySlot(part.frame, part, after, pool)) EXPECT_EQ(piece.keys, &got);
  }
  CutAll(std::move(request));
}

// A part whose caller has been told that it is too late has no places any more.
TEST_F(SplitTest, PartsWithoutTargets) {
  dense_out.resize(gradient.size() * sizeof(float));
  PartitionInput input{.state = &before, .table = &dense, .out = std::span(dense_out)};
  Request request = PreparePull(input, pool).value();
  DropTargets(request.parts[0]);
  for (const ShardPart& piece : CutBySlot(request.parts[0].frame, request.parts[0], after, pool))
    EXPECT_EQ(ExpectedBytes(piece), 0u);
}

}  // namespace
}  // namespace cairn::client
