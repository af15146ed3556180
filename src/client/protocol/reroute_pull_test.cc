// Pulls whose slots move: asked again where the slots are, with every reply in its place.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "client/protocol/fake_cluster.h"

namespace cairn::client {
namespace {

// Three servers with one thread, six slots: 0 1 on server 0, 2 3 on 1, 4 5 on 2.
class ReroutePullTest : public ::testing::Test {
 protected:
  ReroutePullTest()
      : c(3, 1, 6),
        rows(c.AddTable(
            {.name = "emb", .kind = TableKind::kSparse, .element = ElementType::kInt64, .dim = 2})),
        sync(c.AddTable({.name = "w", .mode = Mode::kSync, .size = 12 * 1024})) {
    for (RowKey key = 0; key < 40; ++key) keys.push_back((key * 7) % 23);  // some twice
  }
  size_t Submit(Result<Request> request, int64_t timeout_us = 600'000'000) {
    request->deadline_us = c.now + timeout_us;
    const size_t at = ends.size();
    ends.emplace_back();
    request->done = [this, at](Status s) {
      EXPECT_FALSE(ends[at]);
      ends[at] = s;
    };
    c.core->Submit(std::move(*request), c.now);
    c.Run();
    return at;
  }
  size_t PullRows() {
    out.assign(keys.size() * 2, 0);
    PartitionInput input{.state = c.core->state().get(),
                         .table = &rows,
                         .keys = keys,
                         .out = std::as_writable_bytes(std::span(out))};
    return Submit(PreparePull(input, c.pool));
  }
  // Every row is (key, -key); a request for keys gets 100 + slot and 200 + slot for each slot.
  void AnswerAll(Position position) {
    for (Link link : c.Links()) {
      while (!c.Inbox(link).empty()) AnswerOne(link, position);
    }
  }
  void AnswerOne(Link link, Position position) {
    const wire::InFrame frame = c.Take(link);
    const wire::PullView pull = wire::DecodePull(frame.header, frame.body()).value();
    std::vector<int64_t> values;
    std::vector<wire::SlotEntry> entries;
    for (const wire::SlotEntry& entry : pull.entries) {
      EXPECT_EQ(c.LinkOfSlot(entry.slot), link);
      EXPECT_GE(frame.header.state_version, c.state.slots[entry.slot].since.value);
      const bool asks_keys = entry.number == kKeyColumn;
      entries.push_back({entry.slot, asks_keys ? 2 : entry.count, position.packed});
      if (asks_keys) values.insert(values.end(), {100 + entry.slot, 200 + entry.slot});
    }
    for (RowKey key : pull.keys) {
      values.push_back(static_cast<int64_t>(key));
      values.push_back(-static_cast<int64_t>(key));
    }
    const auto bytes = std::as_bytes(std::span(values));
    c.AnswerEntries(link, frame, entries, {bytes.begin(), bytes.end()}, 0);
  }
  void ExpectRows() const {
    for (size_t i = 0; i < keys.size(); ++i) {
      EXPECT_EQ(out[2 * i], static_cast<int64_t>(keys[i]));
      EXPECT_EQ(out[2 * i + 1], -static_cast<int64_t>(keys[i]));
    }
  }
  void ClearAll() {
    for (auto& [link, box] : c.inbox) box.clear();
  }

  FakeCluster c;
  wire::TableInfo rows, sync;
  std::vector<RowKey> keys;
  std::vector<int64_t> out;
  std::vector<std::optional<Status>> ends;
};

TEST_F(ReroutePullTest, RowsAreAskedForAgainAtTheirNewOwners) {
  c.StartAll();
  const size_t call = PullRows();
  AnswerOne({0, 0}, Position::Of(1, 5));
  ClearAll();
  c.Kill(1);
  c.Move(5, {0, 0});
  c.NewState();
  EXPECT_EQ(c.Inbox({0, 0}).size(), 2u);  // slots 2 and 5
  EXPECT_EQ(c.Inbox({2, 0}).size(), 2u);  // slot 3, and 4 without 5
  AnswerAll(Position::Of(2, 5));
  ASSERT_TRUE(ends[call] && ends[call]->ok());
  ExpectRows();
}

TEST_F(ReroutePullTest, APullMadeUnderAnOlderMapIsCutWhenItIsSent) {
  c.StartAll();
  out.assign(keys.size() * 2, 0);
  PartitionInput input{.state = c.core->state().get(),
                       .table = &rows,
                       .keys = keys,
                       .out = std::as_writable_bytes(std::span(out))};
  Result<Request> request = PreparePull(input, c.pool);
  c.Kill(1);
  c.NewState();
  const size_t call = Submit(std::move(request));
  AnswerAll(Position::Of(2, 1));
  ASSERT_TRUE(ends[call] && ends[call]->ok());
  ExpectRows();
}

TEST_F(ReroutePullTest, KeysAreAskedForAgain) {
  c.StartAll();
  std::vector<RowKey> got;
  PartitionInput input{.state = c.core->state().get(), .table = &rows};
  const size_t call = Submit(PrepareKeys(input, &got, c.pool));
  AnswerOne({1, 0}, Position::Of(1, 1));
  ClearAll();
  c.Move(0, {2, 0});
  c.NewState();
  AnswerAll(Position::Of(2, 1));
  // Those that stayed were not sent again; their answers come now.
  c.Break({2, 0});
  c.Wait(200'000);
  AnswerAll(Position::Of(2, 1));
  ASSERT_TRUE(ends[call] && ends[call]->ok());
  std::sort(got.begin(), got.end());
  std::vector<RowKey> expected(6);
  std::iota(expected.begin(), expected.end(), RowKey{100});
  for (RowKey slot = 0; slot < 6; ++slot) expected.push_back(200 + slot);
  EXPECT_EQ(got, expected);
}

// The index goes on counting, and the epoch rises: an old owner's values are older.
TEST_F(ReroutePullTest, ReadsNeverGoBackOverOwners) {
  c.StartAll();
  PullRows();
  AnswerAll(Position::Of(1, 7));
  c.Move(2, {0, 0});
  c.NewState();
  PullRows();
  AnswerAll(Position::Of(2, 7));
  ASSERT_TRUE(ends[1] && ends[1]->ok());
  const size_t call = PullRows();
  AnswerAll(Position::Of(1, 8));  // what it would be under the old epoch
  c.Wait(200'000, 10'000);
  EXPECT_FALSE(ends[call]);
  AnswerAll(Position::Of(2, 8));
  EXPECT_TRUE(ends[call] && ends[call]->ok());
}

TEST_F(ReroutePullTest, APullOfASyncTableWaitsForItsRoundWhereTheSlotIs) {
  c.StartAll();
  std::vector<float> values(12 * 1024);
  PartitionInput input{
      .state = c.core->state().get(), .table = &sync, .out = std::as_writable_bytes(std::span(values))};
  const size_t call = Submit(PreparePull(input, c.pool));
  ClearAll();
  c.Kill(0);
  c.NewState();
  for (Link link : c.Links()) {
    for (const wire::InFrame& frame : c.Inbox(link)) {
      EXPECT_EQ(frame.header.flags & wire::kFlagSyncPull, wire::kFlagSyncPull);
      EXPECT_EQ(frame.header.round, 0u);
    }
  }
  EXPECT_FALSE(c.Inbox({1, 0}).empty());
  EXPECT_FALSE(c.Inbox({2, 0}).empty());
  c.Break({1, 0});
  c.Break({2, 0});
  ClearAll();
  c.Wait(200'000);
  for (Link link : c.Links()) {
    while (!c.Inbox(link).empty()) {
      const wire::InFrame frame = c.Take(link);
      const wire::PullView pull = wire::DecodePull(frame.header, frame.body()).value();
      std::vector<float> part;
      for (const wire::SlotEntry& entry : pull.entries)
        part.insert(part.end(), entry.count, static_cast<float>(1 + entry.slot));
      const auto bytes = std::as_bytes(std::span(part));
      c.AnswerValues(link, frame, {bytes.begin(), bytes.end()}, Position::Of(2, 1));
    }
  }
  ASSERT_TRUE(ends[call] && ends[call]->ok());
  const auto runs = wire::RunsBySlot(wire::DenseLayout::Of(sync.id, values.size(), 6));
  for (uint32_t slot = 0; slot < 6; ++slot) {
    for (const wire::DenseRun& run : runs[slot]) {
      for (uint64_t i = run.begin; i < run.begin + run.count; ++i)
        ASSERT_EQ(values[i], static_cast<float>(1 + slot)) << i;
    }
  }
}

// Past its deadline nothing of it is left, on whatever link.
TEST_F(ReroutePullTest, APullThatIsTooLateIsForgottenWhereverItIs) {
  c.StartAll();
  out.assign(keys.size() * 2, 0);
  PartitionInput input{.state = c.core->state().get(),
                       .table = &rows,
                       .keys = keys,
                       .out = std::as_writable_bytes(std::span(out))};
  const size_t call = Submit(PreparePull(input, c.pool), 1'000'000);
  c.Kill(1);
  c.NewState();
  c.Wait(1'100'000);
  ASSERT_TRUE(ends[call]);
  EXPECT_EQ(ends[call]->code(), Code::kDeadlineExceeded);
  for (Link link : c.Links()) {
    for (; !c.Inbox(link).empty(); c.Inbox(link).pop_front()) {
      const wire::InFrame& frame = c.Inbox(link).front();
      c.AnswerValues(link, frame, std::vector<std::byte>(8), Position::Of(2, 1));
    }
  }
  EXPECT_EQ(out, std::vector<int64_t>(keys.size() * 2, 0));
  c.Kill(0);
  c.NewState();
  EXPECT_TRUE(c.Inbox({2, 0}).empty());
}

}  // namespace
}  // namespace cairn::client
