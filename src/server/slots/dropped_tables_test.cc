#include "server/slots/dropped_tables.h"

#include <gtest/gtest.h>

namespace cairn::server {
namespace {

TEST(DroppedTables, TheNewestAreKept) {
  DroppedTables dropped;
  TableSpec spec;
  spec.kind = TableKind::kSparse;
  spec.dim = 7;
  spec.element = ElementType::kInt64;
  spec.segments.resize(100'000);
  for (uint32_t id = 1; id <= DroppedTables::kMost + 1; ++id) dropped.Add(TableId{id}, spec);
  EXPECT_EQ(dropped.Find(TableId{1}), nullptr);
  const TableSpec* found = dropped.Find(TableId{2});
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->kind, TableKind::kSparse);
  EXPECT_EQ(found->dim, 7u);
  EXPECT_EQ(found->element, ElementType::kInt64);
  EXPECT_TRUE(found->segments.empty()) << "what is not needed is not kept";
}

}  // namespace
}  // namespace cairn::server
