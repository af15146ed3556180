// Numbers with a type of their own, and positions that compare as one number.
#include "base/ids.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <unordered_set>

namespace cairn {
namespace {

TEST(StrongId, DoesNotMixWithOthersOrWithPlainNumbers) {
  static_assert(!std::is_convertible_v<uint32_t, TableId>);
  static_assert(!std::is_convertible_v<TableId, uint32_t>);
  static_assert(!std::is_convertible_v<TableId, SlotId>);
  static_assert(!std::is_constructible_v<Round, Seq>);
  static_assert(sizeof(TableId) == 4 && sizeof(Incarnation) == 8);
}

TEST(StrongId, OrdersAndCounts) {
  EXPECT_EQ(Round{}, Round{0});
  EXPECT_LT(Round{3}, Round{4});
  EXPECT_EQ(Round{3}.Next(), Round{4});
  EXPECT_EQ((std::unordered_set<SlotId>{SlotId{1}, SlotId{2}, SlotId{1}}.size()), 2u);
}

TEST(Position, ComparesByEpochThenIndex) {
  EXPECT_LT(Position::Of(1, 5), Position::Of(1, 6));
  EXPECT_LT(Position::Of(1, (uint64_t{1} << 40) - 1), Position::Of(2, 0));
  EXPECT_LT(Position{}, Position::Of(1, 0));
}

TEST(Position, UnpacksWhatItWasMadeOf) {
  const Position p = Position::Of(77, 123456789012);
  EXPECT_EQ(p.epoch(), 77u);
  EXPECT_EQ(p.index(), 123456789012u);
  EXPECT_EQ(Position::Of((1 << 24) - 1, 0).epoch(), (1u << 24) - 1);
}

}  // namespace
}  // namespace cairn
