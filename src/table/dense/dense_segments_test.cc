// Segments of a dense table: where their pieces lie, that a push touches only those of its mask,
// and that each counts its own steps.
#include "table/dense/dense_segments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "table/slot_table_testing.h"

namespace cairn::table {
namespace {

using Ends = std::vector<uint64_t>;

// The segment of every element of a slot, by looking at each.
std::vector<uint32_t> SegmentOfEach(const wire::TableInfo& info, SlotId slot, uint32_t slots) {
  const auto runs = wire::RunsBySlot(wire::DenseLayout::Of(info.id, info.spec.size, slots))[slot.value];
  std::vector<uint32_t> found;
  for (const wire::DenseRun& run : runs) {
    for (uint64_t e = run.begin; e < run.begin + run.count; ++e) {
      uint32_t segment = 0;
      while (!info.spec.segments.empty() && e >= info.spec.segments[segment]) ++segment;
      found.push_back(segment);
    }
  }
  return found;
}

TEST(DenseSegments, PiecesCoverTheSlotInOrder) {
  Random random(3);
  for (uint64_t size : {1u, 700u, 61'706u, 200'000u}) {
    for (int many : {0, 1, 10, 300}) {
      wire::TableInfo info = Dense(size, OptimizerKind::kSgd);
      for (int i = 1; i < many; ++i) info.spec.segments.push_back(1 + random.Below(size));
      if (many > 0) info.spec.segments.push_back(size);
      std::ranges::sort(info.spec.segments);
      info.spec.segments.erase(std::unique(info.spec.segments.begin(), info.spec.segments.end()),
                               info.spec.segments.end());
      for (uint32_t slots : {1u, 3u, 16u}) {
        for (uint32_t s = 0; s < slots; ++s) {
          const auto layout = wire::DenseLayout::Of(info.id, size, slots);
          std::vector<uint32_t> covered;
          uint32_t before = 0;
          for (const DensePiece& piece : PiecesOf(RunsOf(layout, SlotId{s}), info.spec.segments)) {
            ASSERT_EQ(piece.begin, covered.size());
            ASSERT_GT(piece.count, 0u);
            ASSERT_TRUE(covered.empty() || piece.segment > before) << "one piece a segment";
            before = piece.segment;
            covered.insert(covered.end(), piece.count, piece.segment);
          }
          ASSERT_EQ(covered, SegmentOfEach(info, SlotId{s}, slots)) << size << " " << many << " " << slots;
        }
      }
    }
  }
}

struct Segments : ::testing::Test {
  // Three segments in one slot: elements 0-2, 3-9, 10-11.
  wire::TableInfo info = Dense(12, OptimizerKind::kSgd);
  Arena arena;
  std::unique_ptr<SlotTable> table;
  const Hyper hyper{.lr = 0.5, .weight_decay = 0.25};
  std::vector<float> ones = std::vector<float>(12, 1.0f);

  void Make() {
    info.spec.segments = {3, 10, 12};
    table = SlotTable::Make(info, SlotId{0}, 1, arena);
  }
  // A value for each segment, over its elements.
  static std::vector<float> Over(float a, float b, float c) {
    std::vector<float> v(3, a);
    v.insert(v.end(), 7, b);
    v.insert(v.end(), 2, c);
    return v;
  }
};

TEST_F(Segments, AnAsyncPushTouchesItsMaskOnly) {
  info.spec.init = Init::Constant(1);
  Make();
  const auto mask = MaskOf(3, {1});
  // What is left out is ignored: NaN there is nobody's business.
  const auto g = Over(std::nanf(""), 3, std::numeric_limits<float>::infinity());
  ASSERT_TRUE(table->Check({}, Bytes(g), mask).ok());
  table->Apply({}, Bytes(g), mask, hyper);
  ExpectSameBits(ReadFloats(*table, {}), Over(1, 1 - 0.5f * 3.25f, 1));
  ExpectSameBits(ReadFloats(*table, {}, kStepColumn), Over(0, 1, 0));
  table->Apply({}, Bytes(ones), MaskOf(3, {1, 2}), hyper);
  table->Apply({}, Bytes(ones), {}, hyper);
  ExpectSameBits(ReadFloats(*table, {}, kStepColumn), Over(1, 3, 2));
}

TEST_F(Segments, AMaskOfOtherSegmentsIsRefused) {
  Make();
  EXPECT_TRUE(table->Check({}, Bytes(ones), MaskOf(3, {2})).ok());
  EXPECT_EQ(table->Check({}, Bytes(ones), MaskOf(4, {3})).code(), Code::kInvalidArgument);
  EXPECT_EQ(table->Check({}, Bytes(ones), MaskOf(9, {1})).code(), Code::kInvalidArgument);
  auto bad = Over(0, 0, std::nanf(""));
  EXPECT_EQ(table->Check({}, Bytes(bad), MaskOf(3, {2})).code(), Code::kNotFinite);
  EXPECT_TRUE(table->Check({}, Bytes(bad), MaskOf(3, {0, 1})).ok());
  table.reset();
  info.spec.segments.clear();
  info.spec.size = 12;
  table = SlotTable::Make(info, SlotId{0}, 1, arena);
  EXPECT_TRUE(table->Check({}, Bytes(ones), MaskOf(1, {0})).ok()) << "no segments: one";
  EXPECT_EQ(table->Check({}, Bytes(ones), MaskOf(2, {1})).code(), Code::kInvalidArgument);
}

TEST_F(Segments, InARoundASegmentTakesPartIfAnybodyHasIt) {
  info.spec.init = Init::Constant(1);
  Make();
  table->Stage({}, Bytes(Over(2, 4, 99)), MaskOf(3, {1}), 1.0);
  table->Stage({}, Bytes(Over(6, 8, 99)), MaskOf(3, {0, 1}), 3.0);  // segment 0: only the second has it
  EXPECT_EQ(table->ReportStaged(4.0).sum_squares, 3 * 4.5 * 4.5 + 7 * 49.0);
  table->ApplyStaged(hyper, 4.0, 1.0);  // all weights count for all segments
  ExpectSameBits(ReadFloats(*table, {}), Over(1 - 0.5f * (4.5f + 0.25f), 1 - 0.5f * (7.0f + 0.25f), 1));
  ExpectSameBits(ReadFloats(*table, {}, kStepColumn), Over(1, 1, 0));
  // The next round starts from nothing, also where the last one had left something.
  table->Stage({}, Bytes(Over(0, 0, 0)), {}, 1.0);
  EXPECT_EQ(table->ReportStaged(1.0).sum_squares, 0.0);
  table->DropStaged();
  table->Stage({}, Bytes(Over(5, 6, 7)), {}, 1.0);
  table->DropStaged();
  table->Stage({}, Bytes(Over(2, 9, 9)), MaskOf(3, {0}), 1.0);
  EXPECT_EQ(table->ReportStaged(1.0).sum_squares, 3 * 4.0) << "of what is left out nothing counts";
  table->DropStaged();
  ExpectSameBits(ReadFloats(*table, {}, kStepColumn), Over(1, 1, 0));
}

TEST_F(Segments, AMaskWithoutAnyElementHereStagesNothing) {
  Make();
  const auto before = ReadFloats(*table, {});
  table->Stage({}, Bytes(ones), MaskOf(3, {}), 1.0);
  EXPECT_TRUE(table->staged());
  EXPECT_EQ(table->ReportStaged(1).sum_squares, 0);
  table->ApplyStaged(hyper, 1.0, 1.0);
  EXPECT_FALSE(table->staged());
  ExpectSameBits(ReadFloats(*table, {}), before);
}

TEST_F(Segments, TheReportIsTheNaiveSumOfSquares) {
  Make();
  Random random(11);
  const auto a = RandomFloats(random, 12), b = RandomFloats(random, 12);
  table->Stage({}, Bytes(a), {}, 1.5);
  table->Stage({}, Bytes(b), MaskOf(3, {0, 2}), 0.7);
  double squares = 0;
  for (size_t i = 0; i < 12; ++i) {
    float sum = 1.5f * a[i];
    if (i < 3 || i >= 10) sum += 0.7f * b[i];
    const float mean = sum / 2.2f;
    squares += static_cast<double>(mean) * static_cast<double>(mean);
  }
  EXPECT_EQ(table->ReportStaged(2.2).sum_squares, squares);
  EXPECT_TRUE(table->ReportStaged(2.2).finite);
  table->Stage({}, Bytes(Over(0, std::numeric_limits<float>::infinity(), 0)), MaskOf(3, {1}), 1);
  EXPECT_FALSE(table->ReportStaged(2.2).finite);
  table->DropStaged();
}

TEST_F(Segments, MeanReplacesWhatWasStagedAndLeavesTheRest) {
  info.spec.init = Init::Constant(9);
  info.spec.optimizer = OptimizerKind::kMean;
  info.spec.mode = Mode::kSync;
  Make();
  table->Stage({}, Bytes(Over(2, 4, 0)), MaskOf(3, {0, 1}), 1.0);
  table->Stage({}, Bytes(Over(4, 8, 0)), MaskOf(3, {0, 1}), 1.0);
  table->ApplyStaged({}, 2.0, 0.5);
  ExpectSameBits(ReadFloats(*table, {}), Over(1.5, 3, 9));
}

TEST_F(Segments, Int64HasMasksToo) {
  info.spec.optimizer = OptimizerKind::kSum;
  info.spec.element = ElementType::kInt64;
  info.spec.init = Init::Zeros();
  Make();
  const std::vector<int64_t> g(12, 5);
  table->Apply({}, Bytes(g), MaskOf(3, {2}), {});
  table->Stage({}, Bytes(g), MaskOf(3, {0}), 1);
  table->Stage({}, Bytes(g), MaskOf(3, {0, 2}), 1);
  EXPECT_EQ(table->ReportStaged(1).sum_squares, 3 * 100.0 + 2 * 25.0);
  table->ApplyStaged({}, 0, 1);
  std::vector<int64_t> out(12);
  table->Read({}, 0, reinterpret_cast<std::byte*>(out.data()));
  EXPECT_EQ(out, (std::vector<int64_t>{10, 10, 10, 0, 0, 0, 0, 0, 0, 0, 10, 10}));
}

}  // namespace
}  // namespace cairn::table
