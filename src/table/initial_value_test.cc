// Initial values: distribution, and the same bits for ever (owners on different machines compute
// them, and a later version must find what an earlier one had).
#include "table/initial_value.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "table/normal_quantile.h"

namespace cairn::table {
namespace {

std::vector<float> Row(const Init& init, uint32_t table, RowKey key, size_t columns) {
  std::vector<float> row(columns);
  InitialValue(init, TableId{table}, ElementType::kFloat32)
      .FillRow(key, columns, reinterpret_cast<std::byte*>(row.data()));
  return row;
}
std::vector<float> Elements(const Init& init, uint32_t table, uint64_t begin, size_t count) {
  std::vector<float> values(count);
  InitialValue(init, TableId{table}, ElementType::kFloat32)
      .FillElements(begin, count, reinterpret_cast<std::byte*>(values.data()));
  return values;
}

TEST(NormalQuantile, KnownPoints) {
  EXPECT_EQ(NormalQuantile(0.5), 0.0);
  EXPECT_NEAR(NormalQuantile(0.841344746068542949), 1.0, 1e-14);
  EXPECT_NEAR(NormalQuantile(0.977249868051820793), 2.0, 1e-13);
  EXPECT_NEAR(NormalQuantile(0.0013498980316300945), -3.0, 1e-13);
  EXPECT_NEAR(NormalQuantile(3.167124183311992e-05), -4.0, 1e-13);
  EXPECT_NEAR(NormalQuantile(6.220960574271786e-16), -8.0, 1e-12);
}

TEST(NormalQuantile, InvertsTheDistributionFunction) {
  double last = -100;
  for (double p = 1e-16; p < 1; p = p < 0.01 ? p * 1.1 : p + 0.0007) {
    const double x = NormalQuantile(p);
    EXPECT_GT(x, last);
    last = x;
    EXPECT_NEAR(0.5 * std::erfc(-x / std::sqrt(2.0)) / p, 1.0, 1e-12) << p;
  }
}

TEST(NormalQuantile, LogarithmAgreesWithLibm) {
  for (double x = 1e-17; x < 1e3; x *= 1.0137)
    EXPECT_NEAR(BasicLog(x), std::log(x), 2e-15 * (1 + std::fabs(std::log(x))));
}

TEST(InitialValue, ZerosAndConstants) {
  EXPECT_EQ(Row(Init::Zeros(), 1, 5, 3), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(Row(Init::Constant(2.5f), 1, 5, 3), (std::vector<float>{2.5f, 2.5f, 2.5f}));
  std::vector<int64_t> row(2, 9);
  const auto fill = [&](float value) {
    InitialValue(Init::Constant(value), TableId{1}, ElementType::kInt64)
        .FillRow(1, 2, reinterpret_cast<std::byte*>(row.data()));
    return row[1];
  };
  EXPECT_EQ(fill(-7.0f), -7);
  EXPECT_EQ(fill(1e30f), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(fill(-1e30f), std::numeric_limits<int64_t>::min());
}

TEST(InitialValue, DependsOnSeedTableKeyAndColumn) {
  const Init init = Init::Uniform(0, 1, 7);
  const float base = Row(init, 1, 10, 2)[0];
  EXPECT_NE(base, Row(init, 1, 10, 2)[1]);
  EXPECT_NE(base, Row(init, 1, 11, 2)[0]);
  EXPECT_NE(base, Row(init, 2, 10, 2)[0]);
  EXPECT_NE(base, Row(Init::Uniform(0, 1, 8), 1, 10, 2)[0]);
  EXPECT_EQ(base, Row(init, 1, 10, 40)[0]);
}

TEST(InitialValue, ADenseElementIsColumnZeroOfItsIndex) {
  for (const Init& init : {Init::Uniform(-1, 1, 3), Init::Normal(0, 1, 3), Init::Constant(4)}) {
    const auto elements = Elements(init, 6, 100, 50);
    for (size_t i = 0; i < elements.size(); ++i) EXPECT_EQ(elements[i], Row(init, 6, 100 + i, 1)[0]);
  }
}

TEST(InitialValue, UniformFillsItsRange) {
  const auto v = Elements(Init::Uniform(-2, 3, 1), 1, 0, 200'000);
  double sum = 0, squares = 0;
  for (float x : v) {
    ASSERT_GE(x, -2.0f);
    ASSERT_LT(x, 3.0f);
    sum += x;
    squares += (x - 0.5) * (x - 0.5);
  }
  EXPECT_NEAR(sum / static_cast<double>(v.size()), 0.5, 0.015);
  EXPECT_NEAR(squares / static_cast<double>(v.size()), 25.0 / 12, 0.02);
}

TEST(InitialValue, TheHighEndIsNeverReached) {
  const float low = 1.0f, high = std::nextafter(1.0f, 2.0f);  // rounding would give it half of the time
  for (float x : Elements(Init::Uniform(low, high, 1), 1, 0, 1000)) ASSERT_EQ(x, low);
  for (float x : Elements(Init::Uniform(-1e-45f, 0, 1), 1, 0, 1000)) ASSERT_LT(x, 0.0f);
}

// Moments, and the share beyond 1, 2, 3 and 4 sigma within five standard errors of what it should be.
TEST(InitialValue, NormalHasItsMomentsAndTails) {
  constexpr size_t kCount = 1'000'000;
  const auto v = Elements(Init::Normal(3, 2, 42), 1, 0, kCount);
  double sum = 0, squares = 0, cubes = 0, fourths = 0;
  size_t beyond[2][5] = {};
  for (float value : v) {
    const double z = (value - 3.0) / 2.0;
    sum += z;
    squares += z * z;
    cubes += z * z * z;
    fourths += z * z * z * z;
    for (int s = 1; s <= 4; ++s) {
      if (z > s) ++beyond[0][s];
      if (z < -s) ++beyond[1][s];
    }
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.005);
  EXPECT_NEAR(squares / kCount, 1.0, 0.007);
  EXPECT_NEAR(cubes / kCount, 0.0, 0.02);
  EXPECT_NEAR(fourths / kCount, 3.0, 0.05);
  for (int s = 1; s <= 4; ++s) {
    const double expected = 0.5 * std::erfc(s / std::sqrt(2.0)) * kCount;
    for (int side : {0, 1}) {
      EXPECT_NEAR(static_cast<double>(beyond[side][s]), expected, 5 * std::sqrt(expected)) << s << " sigma";
    }
  }
}

TEST(InitialValue, ColumnsOfRowsAreUncorrelated) {
  constexpr size_t kRows = 100'000;
  double products = 0;
  for (RowKey key = 0; key < kRows; ++key) {
    const auto row = Row(Init::Normal(0, 1, 1), 1, key, 2);
    products += row[0] * row[1];
  }
  EXPECT_NEAR(products / kRows, 0.0, 0.016);
}

// Golden bits: never to change.
TEST(InitialValue, GoldenValues) {
  struct Golden {
    Init init;
    uint32_t table;
    RowKey key;
    uint32_t bits[4];
  };
  const Golden golden[] = {
      {Init::Uniform(-0.5f, 0.5f, 1), 1u, 0u, {0xBEF38B5Bu, 0x3EC1C209u, 0xBEF244AFu, 0x3ED6B94Cu}},
      {Init::Uniform(0, 1, 0xFFFFFFFFFFFFFFFF),
       77u,
       18446744073709551615u,
       {0x3D2B5440u, 0x3E9CA199u, 0x3F470788u, 0x3D1F9C30u}},
      {Init::Normal(0, 1, 1), 1u, 0u, {0xBFFC5D84u, 0x3F956689u, 0xBFF7019Du, 0x3FB351ABu}},
      {Init::Normal(0, 0.01f, 2024), 3u, 123456789u, {0xBC9D1DA2u, 0x3B588652u, 0xBBDC851Au, 0x3B7A0198u}},
      {Init::Normal(-3, 2, 0),
       4000000000u,
       18446744073709551615u,
       {0xC0DFFA60u, 0xC089489Cu, 0xC082F3D9u, 0xC0D66EC0u}},
  };
  for (const Golden& g : golden) {
    const auto row = Row(g.init, g.table, g.key, 4);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(std::bit_cast<uint32_t>(row[i]), g.bits[i])
          << "table " << g.table << " key " << g.key << " column " << i;
    }
  }
}

TEST(InitialValue, AStreamStandsForTheTablesNumber) {
  Init init = Init::Normal(0, 1, 5);
  const auto first = Row(init, 1, 7, 16), second = Row(init, 2, 7, 16);
  EXPECT_NE(first, second);
  init.stream = 0xABCDEF0123456789;
  const auto streamed = Row(init, 1, 7, 16);
  EXPECT_EQ(streamed, Row(init, 2, 7, 16));
  EXPECT_NE(streamed, first);
  EXPECT_NE(streamed, Row(init, 1, 8, 16));
  EXPECT_EQ(Elements(init, 1, 3, 5), Elements(init, 9, 3, 5));
  Init other = init;
  other.stream = 0xABCDEF012345678A;
  EXPECT_NE(streamed, Row(other, 1, 7, 16));
  other.stream = 2;
  EXPECT_EQ(Row(other, 1, 7, 16), second) << "a stream is mixed in as a table's number is";
}

}  // namespace
}  // namespace cairn::table
