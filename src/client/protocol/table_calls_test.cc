// Calls between their caller and the core: room and memory come back before the caller is told, once, and
// what it is told where a closed client takes no more.
#include "client/protocol/table_calls.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "client/protocol/fake_cluster.h"

namespace cairn::client {
namespace {

class TableCallsTest : public ::testing::Test, public TableCalls::Driver {
 protected:
  TableCallsTest()
      : c(1, 1, 4),
        table(c.AddTable(
            {.name = "emb", .kind = TableKind::kSparse, .element = ElementType::kInt64, .dim = 1})) {
    c.StartAll();
  }
  ClientCore& core() override { return *c.core; }
  int64_t NowUs() const override { return c.now; }
  uint64_t trip() const override { return 7; }
  void OnBegun() override { ++under_way; }
  void OnSubmitted() override {}
  void OnEnded() override { --under_way; }
  void Disown(const WeakFrames&) override { EXPECT_FALSE(ended); }
  void FreeRoom(uint64_t bytes) override {
    EXPECT_FALSE(ended);
    freed += bytes;
  }

  Request Push() {
    return PreparePush({.state = c.core->state().get(),
                        .table = &table,
                        .keys = {&key, 1},
                        .values = std::as_bytes(std::span(&one, 1))},
                       c.pool)
        .value();
  }
  TableCalls::Terms Terms(std::shared_ptr<SplitPush> split = nullptr) {
    return {.deadline_us = c.now + 600'000'000, .reserved = 16, .split = std::move(split)};
  }
  Status Begin(TableCalls::Terms terms) {
    return calls.Begin(Push(), std::move(terms), [this](const Status& status) { ended = status; }, post);
  }
  void BeginPart(const std::shared_ptr<SplitPush>& split) {
    calls.BeginPart(Push(), c.now + 600'000'000, split, post);
  }
  void Ack() { c.AckPush(kLink, c.Take(kLink).header); }

  static constexpr Link kLink{0, 0};
  FakeCluster c;
  wire::TableInfo table;
  RowKey key = 1;
  int64_t one = 1;
  int under_way = 0;
  uint64_t freed = 0;
  bool closed = false;
  std::optional<Status> ended;
  TableCalls calls{*this};
  const std::function<Status(Call<void()>)> post = [this](Call<void()> call) -> Status {
    if (closed) return {Code::kCancelled, "this client is closed"};
    call();
    c.Run();
    return Status::Ok();
  };
};

TEST_F(TableCallsTest, RoomIsFreeWhenThePushHasEnded) {
  ASSERT_TRUE(Begin(Terms()).ok());
  EXPECT_EQ(under_way, 1);
  EXPECT_EQ(freed, 0u);
  Ack();
  ASSERT_TRUE(ended);
  EXPECT_TRUE(ended->ok());
  EXPECT_EQ(under_way, 0);
  EXPECT_EQ(freed, 16u);
}

TEST_F(TableCallsTest, ASplitPushEndsWithTheLastOfItsParts) {
  const auto split = std::make_shared<SplitPush>(32);
  BeginPart(split);
  ASSERT_TRUE(Begin(Terms(split)).ok());
  EXPECT_EQ(under_way, 2);
  Ack();
  EXPECT_FALSE(ended);
  EXPECT_EQ(freed, 0u);
  Ack();
  ASSERT_TRUE(ended);
  EXPECT_TRUE(ended->ok());
  EXPECT_EQ(freed, 16u);
}

TEST_F(TableCallsTest, AClosedClientTakesNothingAndTheRoomIsFree) {
  closed = true;
  EXPECT_EQ(Begin(Terms()).code(), Code::kCancelled);
  EXPECT_EQ(freed, 16u);
  EXPECT_FALSE(ended);
  EXPECT_EQ(under_way, 0);
}

TEST_F(TableCallsTest, OneThatIsClosedBetweenPartsCanNotTellWhatBecameOfThem) {
  const auto split = std::make_shared<SplitPush>(32);
  BeginPart(split);
  closed = true;
  BeginPart(split);
  EXPECT_EQ(Begin(Terms(split)).code(), Code::kOutcomeUnknown);
  EXPECT_EQ(freed, 16u);
  Ack();
  EXPECT_FALSE(ended) << "it was told already";
  EXPECT_EQ(under_way, 0);
}

}  // namespace
}  // namespace cairn::client
