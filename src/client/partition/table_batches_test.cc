#include "client/partition/table_batches.h"

#include <gtest/gtest.h>

#include <string>

#include "wire/control.h"

namespace cairn::client {
namespace {

size_t BytesOf(const std::vector<TableSpec>& specs) {
  BufferPool pool;
  return wire::EncodeControl(wire::CreateTables{1, Incarnation{1}, specs}, pool)->bytes();
}

TEST(TableBatches, KeepTheOrderAndTheBounds) {
  std::vector<TableSpec> specs;
  for (int i = 0; i < 4096; ++i)
    specs.push_back({.name = std::string(i % 7 == 0 ? 240 : 5, 'n') + std::to_string(i), .size = 100});
  const auto messages = InMessages(specs);
  size_t at = 0;
  for (const auto& message : messages) {
    ASSERT_FALSE(message.empty());
    EXPECT_LE(message.size(), wire::kMaxTablesAtOnce);
    EXPECT_LT(BytesOf(message), size_t{1} << 20);
    for (const TableSpec& spec : message) EXPECT_EQ(spec.name, specs[at++].name);
  }
  EXPECT_EQ(at, specs.size());
  EXPECT_LE(messages.size(), 10u);
}

TEST(TableBatches, LargeOnesGoAlone) {
  TableSpec large{.name = "large", .size = wire::kMaxSegments};
  for (uint64_t end = 1; end <= wire::kMaxSegments; ++end) large.segments.push_back(end);
  const auto messages = InMessages({large, {.name = "a", .size = 1}, large, large});
  ASSERT_EQ(messages.size(), 4u);
  for (const auto& message : messages) EXPECT_LT(BytesOf(message), size_t{1} << 20);
}

}  // namespace
}  // namespace cairn::client
