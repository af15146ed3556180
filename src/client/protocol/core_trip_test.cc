// Round trips as the servers count them (kFlagTrip), and replies of keys, whose sizes nobody knows
// before.
#include <gtest/gtest.h>

#include "client/partition/partition_reader_testing.h"
#include "client/protocol/fake_cluster.h"

namespace cairn::client {
namespace {

class TripTest : public ::testing::Test {
 protected:
  static constexpr size_t kSize = 40'000;  // every shard thread has some
  TripTest() : gradient(kSize, 1), out(kSize), keys(200) {
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
    for (int i = 0; i < 3; ++i) {
      TableSpec spec{.name = "t" + std::to_string(i), .mode = Mode::kAsync, .size = kSize};
      if (i == 1) spec.mode = Mode::kSync;
      tables.push_back(c.AddTable(spec));
    }
    tables.push_back(
        c.AddTable({.name = "rows", .kind = TableKind::kSparse, .mode = Mode::kAsync, .dim = 1}));
    c.StartAll();
  }

  PartitionInput Input(size_t table) {
    PartitionInput input{.state = c.core->state().get(), .table = &tables[table]};
    input.values = std::as_bytes(std::span(gradient));
    input.out = std::as_writable_bytes(std::span(out));
    return input;
  }
  void Submit(Result<Request> request, uint64_t trip) {
    CAIRN_CHECK(request.ok());
    request->deadline_us = c.now + 600'000'000;
    request->trip = trip;
    request->done = [this](Status s) { ended.push_back(s); };
    c.core->Submit(std::move(*request), c.now);
    c.Run();
  }
  void Pull(size_t table, uint64_t trip) { Submit(PreparePull(Input(table), c.pool), trip); }
  // Of the frames that have come to each shard thread, oldest first: 'T' begins a trip.
  std::string Marks(Link link) {
    std::string marks;
    for (const wire::InFrame& frame : c.Inbox(link))
      marks += (frame.header.flags & wire::kFlagTrip) != 0 ? 'T' : '-';
    return marks;
  }
  void ExpectMarks(const std::string& marks) {
    for (Link link : c.Links()) EXPECT_EQ(Marks(link), marks);
  }

  FakeCluster c;
  std::vector<wire::TableInfo> tables;
  std::vector<float> gradient, out;
  std::vector<RowKey> keys;
  std::vector<Status> ended;
};

TEST_F(TripTest, OnlyTheFirstFrameOnAConnectionBeginsTheTrip) {
  Pull(0, 5);
  Pull(2, 5);
  Pull(0, 6);
  Pull(2, 6);
  ExpectMarks("T-T-");
}

TEST_F(TripTest, CallsOutsideATripAreTheirOwn) {
  Pull(0, 0);
  Pull(0, 0);
  Submit(PreparePush(Input(2), c.pool), 0);
  ExpectMarks("TTT");
}

TEST_F(TripTest, AConnectionThatATripHasNotUsedYetIsNotPartOfIt) {
  const RowKey one = keys[0];
  PartitionInput input{.state = c.core->state().get(), .table = &tables[3], .keys = {&one, 1}};
  input.out = std::as_writable_bytes(std::span(out).first(1));
  Submit(PreparePull(input, c.pool), 5);
  const Link there = c.LinkOfSlot(wire::SlotOfKey(one, 16).value);
  Pull(0, 5);
  for (Link link : c.Links()) EXPECT_EQ(Marks(link), link == there ? "T-" : "T");
}

// A second round has to wait for the first: it leaves by itself, and is a trip of its own.
TEST_F(TripTest, WhatWaitsForItsTurnIsAnotherTrip) {
  Submit(PrepareRound(Input(1), c.pool), 5);
  Submit(PrepareRound(Input(1), c.pool), 5);
  Pull(0, 5);
  ExpectMarks("T-");
  for (Link link : c.Links()) {
    const wire::InFrame first = c.Take(link);
    c.AnswerValues(link, first, {}, Position::Of(1, 1));
  }
  ExpectMarks("-T");
}

class KeysTest : public TripTest {
 protected:
  // The key of each slot's i-th row is 100 * slot + i; a slot has as many as its number.
  static void RowsOf(const wire::InFrame& request, std::vector<wire::SlotEntry>* entries,
                     std::vector<RowKey>* rows) {
    const wire::PullView asked = wire::DecodePull(request.header, request.body()).value();
    for (const wire::SlotEntry& entry : asked.entries) {
      entries->push_back({entry.slot, entry.slot, Position::Of(1, 1).packed});
      for (uint32_t i = 0; i < entry.slot; ++i) rows->push_back(100 * entry.slot + i);
    }
  }
  void Ask() {
    PartitionInput input{.state = c.core->state().get(), .table = &tables[3]};
    Submit(PrepareKeys(input, &all, c.pool), 0);
  }
  void Answer(Link link) {
    const wire::InFrame request = c.Take(link);
    std::vector<wire::SlotEntry> entries;
    std::vector<RowKey> rows;
    RowsOf(request, &entries, &rows);
    c.AnswerEntries(link, request, entries, BytesOf(rows), 0);
  }
  std::vector<RowKey> all;
};

TEST_F(KeysTest, EveryThreadsKeysAreAdded) {
  Ask();
  for (Link link : c.Links()) {
    EXPECT_TRUE(ended.empty());
    Answer(link);
  }
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_TRUE(ended[0].ok());
  EXPECT_EQ(all.size(), 15u * 16 / 2);
  std::sort(all.begin(), all.end());
  for (uint32_t slot = 0, at = 0; slot < 16; ++slot) {
    for (uint32_t i = 0; i < slot; ++i) EXPECT_EQ(all[at++], 100 * slot + i);
  }
}

TEST_F(KeysTest, AReplyThatCountsOtherwiseIsNotTaken) {
  Ask();
  const Link link = c.LinkOfSlot(15);
  const wire::InFrame request = c.Take(link);
  std::vector<wire::SlotEntry> entries;
  std::vector<RowKey> rows;
  RowsOf(request, &entries, &rows);
  std::vector<wire::SlotEntry> doubled = entries;  // as if they were of four bytes
  for (wire::SlotEntry& entry : doubled) entry.count *= 2;
  c.AnswerEntries(link, request, doubled, BytesOf(rows), 0);
  EXPECT_TRUE(all.empty());
  c.Wait(2'000'000);  // a fresh connection, and all again
  Answer(link);
  EXPECT_EQ(all, rows);
}

TEST_F(KeysTest, AnAnswerFromAnOlderTimeIsNotTaken) {
  Ask();
  const Link link = c.LinkOfSlot(15);
  Answer(link);
  const size_t before = all.size();
  Ask();
  const wire::InFrame request = c.Take(link);
  std::vector<wire::SlotEntry> entries;
  std::vector<RowKey> rows;
  RowsOf(request, &entries, &rows);
  for (wire::SlotEntry& entry : entries) entry.number = 0;
  c.AnswerEntries(link, request, entries, BytesOf(rows), 0);
  EXPECT_EQ(all.size(), before);
}

TEST_F(KeysTest, NothingIsAddedAfterTheDeadline) {
  Ask();
  Answer(c.LinkOfSlot(15));
  const size_t before = all.size();
  c.Wait(601'000'000, 10'000'000);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].code(), Code::kDeadlineExceeded);
  for (Link link : c.Links()) {
    if (!c.Inbox(link).empty()) Answer(link);
  }
  EXPECT_EQ(all.size(), before);
}

TEST_F(KeysTest, ATableWithoutRowsHasNone) {
  Ask();
  for (Link link : c.Links()) {
    const wire::InFrame request = c.Take(link);
    std::vector<wire::SlotEntry> entries;
    const wire::PullView asked = wire::DecodePull(request.header, request.body()).value();
    for (wire::SlotEntry entry : asked.entries) entries.push_back({entry.slot, 0, Position::Of(1, 1).packed});
    c.AnswerEntries(link, request, entries, {}, 0);
  }
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_TRUE(ended[0].ok());
  EXPECT_TRUE(all.empty());
  EXPECT_EQ(c.reads.size(), 16u);  // and the positions count as those of any read
}

}  // namespace
}  // namespace cairn::client
