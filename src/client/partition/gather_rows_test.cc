// Gathering and adding up rows against loops over single elements.
#include "client/partition/gather_rows.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"

namespace cairn::client {
namespace {

struct Gathering {
  size_t dim = 1;
  std::vector<float> rows, many;
  std::vector<int64_t> places;
};

Gathering Make(uint64_t seed) {
  Random random(seed);
  Gathering made;
  made.dim = 1 + random.Next() % 40;
  const size_t count = 1 + random.Next() % 50, ids = random.Next() % 200;
  const auto value = [&] { return static_cast<float>(random.Next() % 1000) / 7.0f - 50.0f; };
  for (size_t i = 0; i < count * made.dim; ++i) made.rows.push_back(value());
  for (size_t i = 0; i < ids * made.dim; ++i) made.many.push_back(value());
  for (size_t i = 0; i < ids; ++i) made.places.push_back(static_cast<int64_t>(random.Next() % count));
  return made;
}

TEST(GatherRows, AgreesWithSingleElements) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const Gathering made = Make(seed);
    std::vector<float> expected, out(made.places.size() * made.dim, 77.0f);
    for (int64_t place : made.places) {
      for (size_t d = 0; d < made.dim; ++d) expected.push_back(made.rows[place * made.dim + d]);
    }
    EXPECT_TRUE(GatherRows(made.rows, made.dim, made.places, out));
    EXPECT_EQ(out, expected) << "seed " << seed;
  }
}

TEST(AddRows, AgreesWithSingleElementsBitForBit) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const Gathering made = Make(seed);
    std::vector<float> expected = made.rows, sums = made.rows;
    for (size_t i = 0; i < made.places.size(); ++i) {
      for (size_t d = 0; d < made.dim; ++d)
        expected[made.places[i] * made.dim + d] += made.many[i * made.dim + d];
    }
    EXPECT_TRUE(AddRows(made.many, made.dim, made.places, sums));
    EXPECT_EQ(sums, expected) << "seed " << seed;
  }
}

TEST(GatherRows, APlaceThatIsNotThereIsRefusedAndNothingIsWritten) {
  const std::vector<float> rows(6, 1.0f);
  for (int64_t wrong : {int64_t{3}, int64_t{-1}, INT64_MIN, INT64_MAX}) {
    const std::vector<int64_t> places = {0, wrong};
    std::vector<float> out(4, 7.0f), sums(6, 7.0f);
    EXPECT_FALSE(GatherRows(rows, 2, places, out));
    EXPECT_FALSE(AddRows(std::vector<float>(4, 1.0f), 2, places, sums));
    EXPECT_EQ(out, std::vector<float>(4, 7.0f));
    EXPECT_EQ(sums, std::vector<float>(6, 7.0f));
  }
}

}  // namespace
}  // namespace cairn::client
