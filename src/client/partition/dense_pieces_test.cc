// Dense tables in pieces: models whose tensors lie here and there, with holes; masks, columns and
// the options of a push, and what is wrong about them.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "client/partition/partition_reader_testing.h"
#include "client/partition/scatter.h"

namespace cairn::client {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// An array cut at random; some of its pieces have no memory.
struct Cut {
  Cut(uint64_t size, Random& random) : whole(size) {
    for (uint64_t at = 0; at < size;) {
      const uint64_t most = random.Chance(0.3) ? 60'000 : 900;
      const uint64_t count = std::min<uint64_t>(size - at, 1 + random.Below(most));
      pieces.push_back({at, std::vector<float>(random.Chance(0.3) ? 0 : count), count});
      for (size_t i = 0; i < pieces.back().values.size(); ++i) {
        pieces.back().values[i] = whole[at + i] = static_cast<float>(at + i + 1);
      }
      at += count;
    }
  }
  template <class Byte>
  PieceList<Byte> List() {
    PieceList<Byte> list;
    for (Piece& piece : pieces) {
      auto* data = reinterpret_cast<Byte*>(piece.values.empty() ? nullptr : piece.values.data());
      list.Add({data, piece.count * sizeof(float)});
    }
    return list;
  }
  struct Piece {
    uint64_t begin;
    std::vector<float> values;
    uint64_t count;
  };
  std::vector<float> whole;  // zeros where there is no memory
  std::vector<Piece> pieces;
};

TEST(DensePieces, GiveTheSameBytesAsOneArray) {
  BufferPool pool;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const auto slots = 1 + static_cast<uint32_t>(random.Below(64));
    const wire::ClusterState state = StateOf(2, 2, slots, random);
    const bool sync = random.Chance(0.5);
    const uint64_t size = 1 + random.Below(250'000);
    const Mode mode = sync ? Mode::kSync : Mode::kAsync;
    const wire::TableInfo table{
        TableId{static_cast<uint32_t>(seed)}, {.name = "w", .mode = mode, .size = size}, {}};
    Cut from(size, random), to(size, random);
    const auto prepare = [&](PieceList<const std::byte> values) {
      const PartitionInput input{.state = &state, .table = &table, .values = std::move(values)};
      return (sync ? PrepareRound(input, pool) : PreparePush(input, pool)).value();
    };
    const Request apart = prepare(from.List<const std::byte>());
    const Request whole = prepare(std::as_bytes(std::span(from.whole)));
    EXPECT_EQ(apart.bytes, whole.bytes);
    ASSERT_EQ(apart.parts.size(), whole.parts.size());
    for (size_t i = 0; i < apart.parts.size(); ++i) {
      const Seen a = Read(apart.parts[i], pool), b = Read(whole.parts[i], pool);
      EXPECT_EQ(a.entries.size(), b.entries.size());
      ASSERT_TRUE(a.values == b.values);  // too much to print
      EXPECT_EQ(apart.parts[i].frame->owned.empty(), sync || a.values.empty());
    }
    // And back: what has no memory is thrown away, everything else finds its place.
    const PartitionInput pull{.state = &state, .table = &table, .out = to.List<std::byte>()};
    for (Cut::Piece& piece : to.pieces) std::fill(piece.values.begin(), piece.values.end(), -1.0f);
    const Request request = PreparePull(pull, pool).value();
    const auto runs = wire::RunsBySlot(wire::DenseLayout::Of(table.id, size, slots));
    for (const ShardPart& part : request.parts) {
      std::vector<float> reply;
      for (const wire::SlotEntry& entry : Read(part, pool).entries) {
        for (const wire::DenseRun& run : runs[entry.slot]) {
          for (uint64_t i = 0; i < run.count; ++i) reply.push_back(static_cast<float>(run.begin + i));
        }
      }
      Scatter(part, BytesOf(reply));
    }
    for (const Cut::Piece& piece : to.pieces) {
      for (size_t i = 0; i < piece.values.size(); ++i)
        ASSERT_EQ(piece.values[i], static_cast<float>(piece.begin + i));
    }
  }
}

TEST(DensePieces, APlanIsUsedWhereItFitsAndMadeAnewWhereNot) {
  BufferPool pool;
  Random random(5);
  wire::ClusterState state = StateOf(2, 2, 16, random);
  const wire::TableInfo table{TableId{4}, {.name = "w", .size = 60'000}, {}};
  DensePlanCache cache;
  const auto plan = cache.Get(table, state);
  EXPECT_EQ(cache.Get(table, state), plan);
  std::vector<float> values(60'000);
  PartitionInput input{
      .state = &state, .table = &table, .values = std::as_bytes(std::span(values)), .plan = plan};
  const Request first = PreparePush(input, pool).value();
  for (const ShardPart& part : first.parts) ExpectRouted(state, part, Read(part, pool));
  wire::ClusterState moved = StateOf(2, 2, 16, random);  // other owners
  moved.version = state.version.Next();
  input.state = &moved;
  const Request second = PreparePush(input, pool).value();
  for (const ShardPart& part : second.parts) ExpectRouted(moved, part, Read(part, pool));
  EXPECT_NE(cache.Get(table, moved), plan);
}

class DenseOptions : public ::testing::Test {
 protected:
  DenseOptions() : values(1000), out(1000) {
    table = {TableId{1}, {.name = "w", .mode = Mode::kSync, .size = 1000}, {}};
    for (uint64_t end = 100; end <= 1000; end += 100) table.spec.segments.push_back(end);
  }
  PartitionInput Input() {
    return {.state = &state,
            .table = &table,
            .values = std::as_bytes(std::span(values)),
            .out = std::as_writable_bytes(std::span(out))};
  }
  Result<Request> Prepare(const PartitionInput& input) {
    return table.spec.mode == Mode::kSync ? PrepareRound(input, pool) : PreparePush(input, pool);
  }
  std::string ErrorOf(const Result<Request>& request) {
    EXPECT_EQ(request.status().code(), Code::kInvalidArgument);
    return request.status().message();
  }
  // The frames that have values.
  std::vector<Seen> Carriers(const Request& request) {
    std::vector<Seen> frames;
    for (const ShardPart& part : request.parts) {
      Seen seen = Read(part, pool);
      if (!seen.values.empty()) frames.push_back(std::move(seen));
    }
    return frames;
  }

  BufferPool pool;
  const wire::ClusterState state = FakeCluster().state;
  wire::TableInfo table;
  std::vector<float> values, out;
};

TEST_F(DenseOptions, AMaskTravelsCutToTheSegmentsOfTheTable) {
  for (const Mode mode : {Mode::kSync, Mode::kAsync}) {
    table.spec.mode = mode;
    PartitionInput input = Input();
    const std::vector<std::byte> mask(5, std::byte{0xF5});
    input.mask = mask;
    for (const Seen& seen : Carriers(Prepare(input).value()))
      EXPECT_EQ(seen.mask, (std::vector<std::byte>{std::byte{0xF5}, std::byte{0x01}}));
    const std::vector<std::byte> all(2, std::byte{0xFF});
    input.mask = all;
    for (const Seen& seen : Carriers(Prepare(input).value())) EXPECT_TRUE(seen.mask.empty());
    input.mask = std::span(mask).first(1);
    EXPECT_EQ(ErrorOf(Prepare(input)), "table \"w\" has 10 segments: a mask needs 2 bytes, this one has 1");
  }
  table.spec = {.name = "e", .kind = TableKind::kSparse, .dim = 1};
  const std::vector<RowKey> keys(1000);
  PartitionInput input = Input();
  input.keys = keys;
  const std::byte bit{1};
  input.mask = {&bit, 1};
  EXPECT_EQ(ErrorOf(Prepare(input)), "table \"e\" is sparse: it has no segments, and no mask");
}

TEST_F(DenseOptions, OnlySegmentsInThePushMustBeFinite) {
  for (const Mode mode : {Mode::kSync, Mode::kAsync}) {
    table.spec.mode = mode;
    values.assign(1000, 0.0f);
    values[250] = values[999] = kNan;
    PieceList<const std::byte> pieces;
    for (size_t at = 0; at < 1000; at += 125) pieces.Add(std::as_bytes(std::span(values).subspan(at, 125)));
    PartitionInput input = Input();
    input.values = pieces;
    std::vector<std::byte> mask{std::byte{0xFB}, std::byte{0x01}};  // without segments 2 and 9
    input.mask = mask;
    EXPECT_TRUE(Prepare(input).ok());
    mask[1] = std::byte{0x03};
    EXPECT_EQ(Prepare(input).status().code(), Code::kNotFinite);
    EXPECT_NE(Prepare(input).status().message().find("element 999 of the push"), std::string::npos);
    input.mask = {};
    EXPECT_NE(Prepare(input).status().message().find("element 250 of the push"), std::string::npos);
    if (mode == Mode::kSync) {
      input.phase = RoundPhase::kContribute;
      EXPECT_EQ(Prepare(input).status().code(), Code::kNotFinite);
      input.not_finite = true;  // said, not sent
      EXPECT_TRUE(Prepare(input).ok());
    }
  }
}

TEST_F(DenseOptions, EveryOptionArrives) {
  PartitionInput input = Input();
  input.hyper = {1, 2, 3, 4, 5, 6};
  input.weight = 7;
  input.value_scale = 0.125;
  for (const Seen& seen : Carriers(Prepare(input).value())) {
    EXPECT_EQ(seen.params.hyper(), input.hyper);
    EXPECT_EQ(seen.params.weight, 7.0);
    EXPECT_EQ(seen.params.value_scale, 0.125);
    EXPECT_EQ(seen.params.flags, 0);
  }
  input.op = PushOp::kAssign;
  input.column = kStepColumn;
  for (const Seen& seen : Carriers(Prepare(input).value())) {
    EXPECT_EQ(seen.params.op, 1);
    EXPECT_EQ(seen.params.column, kStepColumn);
  }
  input.values = {};  // the others' part of a round of assigns
  const Request bare = Prepare(input).value();
  for (const ShardPart& part : bare.parts) EXPECT_EQ(Read(part, pool).params.op, 1);
  input.pull_column = kStepColumn;
  const Request pull = PreparePull(input, pool).value();
  for (const ShardPart& part : pull.parts) {
    const Seen seen = Read(part, pool);
    EXPECT_EQ(seen.header.flags, wire::kFlagSyncPull);
    for (const wire::SlotEntry& entry : seen.entries) EXPECT_EQ(entry.number, kStepColumn);
  }
  table.spec.mode = Mode::kAsync;
  PartitionInput once = Input();
  once.op = PushOp::kAssignOnce;
  for (const Seen& seen : Carriers(Prepare(once).value())) EXPECT_EQ(seen.params.op, 2);
  once.when_assigned = true;
  EXPECT_EQ(Read(PreparePull(once, pool)->parts[0], pool).header.flags, wire::kFlagAssigned);
}

TEST_F(DenseOptions, MistakesAreNamed) {
  const auto with = [&](auto change) {
    PartitionInput input = Input();
    change(input);
    return ErrorOf(Prepare(input));
  };
  EXPECT_EQ(with([](auto& i) { i.hyper.beta2 = kNan; }),
            "the beta2 or alpha of a push to table \"w\" is not finite");
  for (double scale : {0.0, double{kNan}, std::numeric_limits<double>::infinity()})
    with([&](auto& i) { i.value_scale = scale; });
  with([](auto& i) { i.skip = true; });
  with([](auto& i) { i.scale = 0.5; });
  with([](auto& i) { i.not_finite = true; });
  with([](auto& i) { i.column = 1; });
  with([](auto& i) { i.op = PushOp::kAssignOnce; });
  with([](auto& i) { i.op = PushOp::kAssign, i.phase = RoundPhase::kContribute; });
  with([](auto& i) { i.scale = kNan, i.phase = RoundPhase::kDecide; });
  with([](auto& i) { i.hyper.dampening = kNan; });
  with([](auto& i) { i.weight = 1e31; });
  const RowKey key = 1;
  EXPECT_NE(with([&](auto& i) { i.keys = {&key, 1}; }).find("a push has no keys"), std::string::npos);
  EXPECT_EQ(with([](auto& i) { i.op = PushOp::kAssign, i.column = 1; }),
            "table \"w\" has no column 1: its optimizer keeps 0 of them, beside the values (0) and "
            "the steps (15)");
  EXPECT_EQ(with([&](auto& i) {
              PieceList<const std::byte> pieces;
              pieces.Add({static_cast<const std::byte*>(nullptr), 400});
              pieces.Add(std::as_bytes(std::span(values)));
              i.values = pieces;
            }),
            "table \"w\" has 1000 elements, push has 1100 in 2 pieces: give the whole table, or "
            "make it anew with this size");
  with([&](auto& i) {
    PieceList<const std::byte> pieces;
    pieces.Add({static_cast<const std::byte*>(nullptr), 398});
    pieces.Add({static_cast<const std::byte*>(nullptr), 3602});
    i.values = pieces;
  });
  PartitionInput pull = Input();
  pull.when_assigned = true;
  EXPECT_NE(ErrorOf(PreparePull(pull, pool)).find("leave when_assigned out"), std::string::npos);
  pull.when_assigned = false;
  pull.pull_column = 2;
  ErrorOf(PreparePull(pull, pool));
  table.spec.mode = Mode::kAsync;
  EXPECT_EQ(with([](auto& i) { i.joined = true; }),
            "table \"w\" is asynchronous: joined is for rounds of synchronous tables");
  with([](auto& i) { i.value_scale = 2; });
  EXPECT_EQ(with([](auto& i) { i.weighted = true; }),
            "table \"w\" is asynchronous: weight is for rounds of synchronous tables");
  PartitionInput both = Input();
  both.pull_after = true;
  EXPECT_NE(ErrorOf(PreparePush(both, pool)).find("a push followed by a pull"), std::string::npos);
  table.spec.element = ElementType::kInt64;
  table.spec.size = 500;
  table.spec.segments.clear();
  EXPECT_EQ(with([](auto& i) { i.op = PushOp::kAssign; }),
            "table \"w\" is of int64: an assign is for tables of float32");
  table.spec.mode = Mode::kSync;
  EXPECT_EQ(with([](auto& i) { i.value_scale = 2; }), "table \"w\" is of int64: value_scale is for float32");
}

// Who has joined weighs nothing, and a decision has no weight of its own.
TEST_F(DenseOptions, OnlyAContributionIsWeighted) {
  PartitionInput input = Input();
  input.weight = 3;
  input.weighted = true;
  const auto marks = [&] { return Read(Prepare(input)->parts.back(), pool).params; };
  EXPECT_TRUE(marks().has(wire::kParamWeighted));
  EXPECT_EQ(marks().weight, 3);
  input.joined = true;
  EXPECT_FALSE(marks().has(wire::kParamWeighted));
  EXPECT_EQ(marks().weight, 0);
  input.joined = false;
  input.phase = RoundPhase::kDecide;
  EXPECT_FALSE(marks().has(wire::kParamWeighted));
}

TEST_F(DenseOptions, ABareDoneThatPullsNamesEverySlotAndContributesToNone) {
  PartitionInput input = Input();
  input.values = {};
  input.pull_after = true;
  uint64_t elements = 0;
  size_t expected = 0;
  const Request request = Prepare(input).value();
  EXPECT_EQ(request.parts.size(), FakeCluster().Links().size());
  for (const ShardPart& part : request.parts) {
    const Seen seen = Read(part, pool);
    EXPECT_EQ(seen.header.type, wire::FrameType::kDone);
    EXPECT_EQ((seen.header.flags & wire::kFlagPullAfter) != 0, !seen.entries.empty());
    for (const wire::SlotEntry& entry : seen.entries) elements += entry.count;
    for (std::byte b : seen.bitmap) EXPECT_EQ(b, std::byte{0});
    expected += ExpectedBytes(part);
  }
  EXPECT_EQ(elements, 1000u);
  EXPECT_EQ(expected, 4000u);
}

}  // namespace
}  // namespace cairn::client
