// CachedRows over real servers, with two workers: the bound, what a push of one's own does, refusals.
#include "cairn/cached_rows.h"

#include <gtest/gtest.h>

#include <vector>

#include "workers.h"

namespace cairn {
namespace {

using testing::Cluster;
using testing::RunWorkers;

TableSpec Spec(Mode mode, ElementType element = ElementType::kFloat32) {
  TableSpec spec{.name = "counted", .kind = TableKind::kSparse, .mode = mode, .dim = 2};
  spec.element = element;
  spec.optimizer = OptimizerKind::kSum;
  return spec;
}

TEST(CachedRows, AnothersUpdateIsSeenAfterTheBoundAndNotLater) {
  constexpr uint32_t kSteps = 3;
  auto cluster = Cluster(2, 1, 2);
  RunWorkers(*cluster, 2, [&](Client& client) {
    SparseTable table = client.CreateSparse(Spec(Mode::kAsync)).value();
    const std::vector<RowKey> keys = {5, 6, 7};
    std::vector<float> rows(6);
    if (client.rank() == 1) {
      ASSERT_TRUE(client.Barrier().ok());  // the other one has them cached
      ASSERT_TRUE(table.Push(keys, std::vector<float>(6, 1.0f)).Wait().ok());
      ASSERT_TRUE(client.Barrier().ok());
      return;
    }
    CachedRows cached = CachedRows::Make(table, {.rows = 100, .steps = kSteps}).value();
    for (int touch = 0; touch < 2; ++touch) ASSERT_TRUE(cached.Pull(keys, rows).ok());
    ASSERT_EQ(cached.stats().rows, 3u);
    EXPECT_EQ(cached.stats().misses, 6u);
    EXPECT_EQ(cached.stats().hits, 0u);
    ASSERT_TRUE(client.Barrier().ok());
    ASSERT_TRUE(client.Barrier().ok());  // written and acknowledged
    for (uint32_t step = 0; step <= kSteps; ++step) {
      ASSERT_TRUE(cached.Pull(keys, rows).ok());
      EXPECT_EQ(rows, std::vector<float>(6, 0.0f)) << step;
      ASSERT_TRUE(table.Push(keys, std::vector<float>(6, 10.0f)).Wait().ok());  // changes nothing here
      cached.Step();
    }
    ASSERT_TRUE(cached.Pull(keys, rows).ok());
    EXPECT_EQ(rows, std::vector<float>(6, 1.0f + 10.0f * (kSteps + 1)));
    ASSERT_TRUE(table.Push(keys, std::vector<float>(6, 100.0f)).Wait().ok());
    cached.Clear();
    ASSERT_TRUE(cached.Pull(keys, rows).ok());
    EXPECT_EQ(rows, std::vector<float>(6, 101.0f + 10.0f * (kSteps + 1)));
  });
}

TEST(CachedRows, WhatCanNotBeCachedIsRefused) {
  auto cluster = Cluster(1, 1, 1);
  RunWorkers(*cluster, 1, [&](Client& client) {
    const auto refusal = [&](TableSpec spec, const std::string& name) {
      spec.name = name;
      const auto made = CachedRows::Make(client.CreateSparse(spec).value(), {.rows = 10, .steps = 1});
      return made.ok() ? "" : made.status().ToString();
    };
    EXPECT_NE(refusal(Spec(Mode::kSync), "sync").find("is synchronous"), std::string::npos);
    EXPECT_NE(refusal(Spec(Mode::kAsync, ElementType::kInt64), "int64").find("holds int64"),
              std::string::npos);
    CachedRows cached =
        CachedRows::Make(client.CreateSparse(Spec(Mode::kAsync)).value(), {.rows = 10, .steps = 1}).value();
    std::vector<float> rows(3);
    EXPECT_EQ(cached.Pull(std::vector<RowKey>{1, 2}, rows).code(), Code::kInvalidArgument);
    ASSERT_TRUE(client.DropTable("counted").ok());
    rows.resize(2);
    EXPECT_EQ(cached.Pull(std::vector<RowKey>{1}, rows).code(), Code::kNotFound);
  });
}

}  // namespace
}  // namespace cairn
