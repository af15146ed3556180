// InitialRows is what a table with this stream says of its rows.
#include <gtest/gtest.h>

#include <vector>

#include "cairn/client.h"
#include "table/initial_value.h"

namespace cairn {
namespace {

TEST(InitialRows, AreThoseOfAnyTableWithTheStream) {
  const std::vector<RowKey> keys{7, 0, ~RowKey{0}, 7};
  for (Init init : {Init::Normal(0.5f, 2, 11), Init::Uniform(-1, 3, 12), Init::Constant(4), Init::Zeros()}) {
    init.stream = 99;
    std::vector<float> rows(keys.size() * 3, -7), expected(rows.size());
    InitialRows(init, keys, 3, rows);
    const table::InitialValue there(init, TableId{41}, ElementType::kFloat32);
    for (size_t i = 0; i < keys.size(); ++i)
      there.FillRow(keys[i], 3, reinterpret_cast<std::byte*>(expected.data() + 3 * i));
    EXPECT_EQ(rows, expected);
    EXPECT_TRUE(std::equal(rows.begin(), rows.begin() + 3, rows.begin() + 9));  // the same key
  }
}

TEST(InitialRows, OfNarrowTablesAreRounded) {
  const std::vector<RowKey> keys{7, 8};
  Init init = Init::Constant(1.0f / 3);
  std::vector<float> rows(4);
  InitialRows(init, keys, 2, rows, Storage::kBfloat16);
  EXPECT_EQ(rows, std::vector<float>(4, 0.333984375f));
  InitialRows(init, keys, 2, rows, Storage::kFloat16);
  EXPECT_EQ(rows, std::vector<float>(4, 0.333251953125f));
}

TEST(InitialRows, AnotherStreamIsAnotherStory) {
  const std::vector<RowKey> keys{1, 2};
  Init init = Init::Normal(0, 1, 5);
  std::vector<float> one(8), two(8);
  init.stream = 1;
  InitialRows(init, keys, 4, one);
  init.stream = 2;
  InitialRows(init, keys, 4, two);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NE(one[i], two[i]);
}

}  // namespace
}  // namespace cairn
