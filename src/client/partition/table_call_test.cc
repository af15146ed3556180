// What can be wrong about a call on a table before it is partitioned.
#include "client/partition/table_call.h"

#include <gtest/gtest.h>

#include <array>
#include <span>

namespace cairn::client {
namespace {

class TableCallTest : public ::testing::Test {
 protected:
  TableCallTest() {
    table.info = {TableId{3}, {.name = "w", .size = 10}, {}};
    state.tables = {table.info};
    state.next_table = TableId{4};
  }
  TableHandle table;
  wire::ClusterState state;
};

TEST_F(TableCallTest, ArraysOfAnotherTypeAreRefused) {
  EXPECT_TRUE(CheckCall(table, {.element = ElementType::kFloat32}, state).ok());
  const Status wrong = CheckCall(table, {.element = ElementType::kInt64}, state);
  EXPECT_EQ(wrong.code(), Code::kInvalidArgument);
  EXPECT_EQ(wrong.message(), "table \"w\" holds float32, the arrays of this call int64");
}

TEST_F(TableCallTest, ADroppedTableIsNamedAndANewOneIsNotTakenForOne) {
  state.tables.clear();
  EXPECT_EQ(CheckCall(table, {}, state).code(), Code::kNotFound);
  state.next_table = TableId{3};  // the state is older than the handle
  EXPECT_TRUE(CheckCall(table, {}, state).ok());
}

TEST_F(TableCallTest, AnEmptyGradientIsNoBareDone) {
  const Status wrong = CheckGiven(table, {});
  EXPECT_EQ(wrong.code(), Code::kInvalidArgument);
  EXPECT_EQ(wrong.message(), "table \"w\" has 10 elements, push has 0: give the whole table, or a Done");
  const std::array<float, 10> gradient{};
  TableCall call;
  call.values.Add(std::as_bytes(std::span(gradient)));
  EXPECT_TRUE(CheckGiven(table, call).ok());
  table.info.spec.kind = TableKind::kSparse;
  EXPECT_TRUE(CheckGiven(table, {}).ok());
}

TEST_F(TableCallTest, BytesAreThoseOfKeysAndValues) {
  const std::array<RowKey, 2> keys{1, 2};
  const std::array<float, 4> rows{};
  TableCall call;
  call.keys = keys;
  call.values.Add(std::as_bytes(std::span(rows)));
  EXPECT_EQ(call.bytes(), 32u);
}

}  // namespace
}  // namespace cairn::client
