// How far pushes may go beyond one that is not answered yet (docs/internals/consistency.md, rule 23).
#include "client/links/answered_numbers.h"

#include <gtest/gtest.h>

#include "client/protocol/fake_cluster.h"

namespace cairn::client {
namespace {

TEST(AnsweredNumbers, AGapIsWaitedForAndSlotsAreApart) {
  AnsweredNumbers numbers;
  numbers.SetSize(2);
  numbers.OnAnswered(0, 1);
  numbers.OnAnswered(0, 3);
  numbers.OnAnswered(0, 4);
  numbers.OnAnswered(1, 2);
  EXPECT_EQ(numbers.through(0), 1u);
  EXPECT_EQ(numbers.through(1), 0u);
  numbers.OnAnswered(0, 2);
  EXPECT_EQ(numbers.through(0), 4u);
  numbers.OnAnswered(0, 4);  // once more
  EXPECT_EQ(numbers.through(0), 4u);
  numbers.OnAnswered(1, 1);
  EXPECT_EQ(numbers.through(1), 2u);
}

// An answer over two slots waits for both, and others pass it. A shard keeps as many refusals of a slot as
// frames may be under way: nothing goes out that makes it forget the outcome of the one that waits.
TEST(AnsweredNumbers, NoPushPassesAnUnansweredOneByMoreThanTheFramesUnderWay) {
  constexpr uint32_t kTwoSlots = 2;
  FakeCluster c(1, 1, kTwoSlots);
  const auto table =
      c.AddTable({.name = "emb", .kind = TableKind::kSparse, .element = ElementType::kInt64, .dim = 1});
  c.options.max_unacked_frames = 3;
  c.StartAll();
  auto key_in = [](uint32_t slot) {
    RowKey key = 0;
    while (wire::SlotOfKey(key, kTwoSlots).value != slot) ++key;
    return key;
  };
  auto push = [&](std::vector<RowKey> keys) {
    const std::vector<int64_t> values(keys.size(), 1);
    PartitionInput input{.state = c.core->state().get(),
                         .table = &table,
                         .keys = keys,
                         .values = std::as_bytes(std::span(values))};
    Request request = PreparePush(input, c.pool).value();
    request.deadline_us = c.now + 600'000'000;
    request.done = [](const Status&) {};
    c.core->Submit(std::move(request), c.now);
    c.Run();
  };
  push({key_in(0), key_in(1)});
  const auto waits = c.Take({0, 0}).header;
  for (int i = 0; i < 4; ++i) push({key_in(0)});
  for (int i = 0; i < 2; ++i) c.AckPush({0, 0}, c.Take({0, 0}).header);
  EXPECT_TRUE(c.Inbox({0, 0}).empty()) << "number 4 would be three beyond number 1";
  c.AckPush({0, 0}, waits);
  EXPECT_EQ(c.Inbox({0, 0}).size(), 2u);
}

}  // namespace
}  // namespace cairn::client
