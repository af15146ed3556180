// Numbered pushes: exactly once, in order, with the same outcome for every copy.
#include <limits>

#include "server/shard/request_size.h"
#include "server/shard/shard_harness.h"
#include "transport/tcp/frame_reader.h"
#include "wire/coding.h"

namespace cairn::server {
namespace {

class Pushes : public ::testing::Test {
 protected:
  Pushes() {
    h.SkipAnswers();
    table = h.AddTable(ShardHarness::Sparse(Mode::kAsync, OptimizerKind::kSum));
  }
  std::string Send(uint32_t rank, std::vector<Row> rows) {
    h.Deliver(rank, h.Push(rank, table, std::move(rows)));
    return h.Answer(rank);
  }
  ShardHarness h;
  TableId table;
};

TEST_F(Pushes, NextNumberIsAppliedAndACopyIsAcknowledgedOnly) {
  wire::FramePtr push = h.Push(0, table, {{1, 2.0f, 1}});
  for (int copy = 0; copy < 3; ++copy) {
    h.Deliver(0, push);
    EXPECT_EQ(h.Answer(0), "applied");
  }
  EXPECT_EQ(h.Stored(table, 1), 2.0f);
  EXPECT_EQ(h.shard->LastSeq(SlotId{1}, h.incarnations[0]), Seq{1});
  ASSERT_EQ(h.seen.pushes.size(), 3u);
  EXPECT_EQ(h.seen.pushes[0].outcome, Outcome::kApplied);
  EXPECT_EQ(h.seen.pushes[1].outcome, Outcome::kDuplicate);
}

TEST_F(Pushes, NumbersArePerSlotAndClient) {
  EXPECT_EQ(Send(0, {{0, 1, 1}, {1, 1, 1}}), "applied");
  EXPECT_EQ(Send(1, {{0, 10, 1}}), "applied");
  EXPECT_EQ(Send(0, {{0, 1, 2}, {2, 1, 1}}), "applied");
  EXPECT_EQ(h.Stored(table, 0), 12.0f);
  EXPECT_EQ(h.shard->LastSeq(SlotId{0}, h.incarnations[0]), Seq{2});
  EXPECT_EQ(h.shard->LastSeq(SlotId{0}, h.incarnations[1]), Seq{1});
}

TEST_F(Pushes, ManyPushesAreAllApplied) {
  for (uint64_t n = 1; n <= 500; ++n) EXPECT_EQ(Send(0, {{0, 1, n}, {3, 2, n}}), "applied");
  EXPECT_EQ(h.Stored(table, 0), 500.0f);
  EXPECT_EQ(h.Stored(table, 3), 1000.0f);
}

TEST_F(Pushes, AGapIsAnsweredWithThePlaceToResumeAndNothingIsApplied) {
  EXPECT_EQ(Send(0, {{1, 1, 1}}), "applied");
  EXPECT_EQ(Send(0, {{0, 5, 1}, {1, 1, 4}}), "1:unavailable@2 a push before this one is missing");
  EXPECT_EQ(h.Stored(table, 0), 5.0f) << "atomic per slot, not across slots";
  EXPECT_EQ(h.Stored(table, 1), 1.0f);
  EXPECT_EQ(h.seen.pushes.back().outcome, Outcome::kGap);
}

TEST_F(Pushes, ARefusalUsesUpTheNumberAndEveryCopyGetsIt) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  wire::FramePtr bad = h.Push(0, table, {{0, 1, 1}, {1, nan, 1}});
  h.Deliver(0, bad);
  const std::string first = h.Answer(0);
  EXPECT_TRUE(first.starts_with("1:not_finite@1 table \"w\"")) << first;
  EXPECT_EQ(Send(0, {{1, 7, 2}}), "applied");
  h.Deliver(0, bad);
  EXPECT_EQ(h.Answer(0), first);
  EXPECT_EQ(h.Stored(table, 0), 1.0f);
  EXPECT_EQ(h.Stored(table, 1), 7.0f);
}

TEST_F(Pushes, PositionsRiseByOneForAppliedAndRefused) {
  Send(0, {{1, 1, 1}});
  Send(0, {{1, std::numeric_limits<float>::infinity(), 2}});
  Send(0, {{1, 1, 3}});
  Send(0, {{1, 1, 3}});
  std::vector<uint64_t> indexes;
  for (const PushEvent& push : h.seen.pushes) indexes.push_back(push.position.index());
  EXPECT_EQ(indexes, (std::vector<uint64_t>{1, 2, 3, 3}));
}

TEST_F(Pushes, OnlyAsManyRefusalsAsAClientHasInFlightAreKept) {
  ShardOptions options;
  options.refusals_kept = 2;
  ShardHarness small(1, options);
  table = small.AddTable(ShardHarness::Sparse(Mode::kAsync));
  small.SkipAnswers();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (uint64_t n = 1; n <= 3; ++n) small.Deliver(0, small.Push(0, table, {{1, nan, n}}));
  small.SkipAnswers();
  small.Deliver(0, small.Push(0, table, {{1, nan, 2}}));
  EXPECT_TRUE(small.Answer(0).starts_with("1:not_finite@2"));
  small.Deliver(0, small.Push(0, table, {{1, nan, 1}}));
  EXPECT_EQ(small.Answer(0), "applied") << "forgotten: no client of ours can still ask";
}

TEST_F(Pushes, WrongRowWidthNamesBothWidths) {
  TableSpec wide = ShardHarness::Sparse(Mode::kAsync);
  wide.name = "user_emb";
  wide.dim = 16;
  table = h.AddTable(wide);
  EXPECT_EQ(Send(0, {{0, 1, 1}, {1, 1, 1}}),
            "0:invalid_argument@1 1:invalid_argument@1 "
            "table \"user_emb\" has dim 16, push has 1: recreate the table or fix the model");
  EXPECT_EQ(h.shard->LastSeq(SlotId{0}, h.incarnations[0]), Seq{1});
}

TEST_F(Pushes, ASyncTableTakesNoNumberedPush) {
  table = h.AddTable(ShardHarness::Sparse(Mode::kSync));
  EXPECT_EQ(Send(0, {{0, 1, 1}}),
            "0:invalid_argument@1 table \"w\" is synchronous, a numbered push is for asynchronous tables: "
            "contribute to its round instead");
}

TEST_F(Pushes, DenseTablesTakeWholeSlotsWithoutKeys) {
  TableSpec spec;
  spec.name = "bias";
  spec.size = 5 * 1024;
  table = h.AddTable(spec);
  EXPECT_EQ(Send(0, {{0, 1, 1}}),
            "0:invalid_argument@1 table \"bias\" is dense, push has 1 keys: use a sparse table or leave the "
            "keys out");
  for (uint32_t count : {1000u, 1024u}) {
    wire::DataParts parts = h.Parts(0, wire::FrameType::kPush, table);
    wire::PushParams params;
    const wire::SlotEntry entry{0, count, count == 1000 ? 2u : 3u};
    parts.params = &params;
    parts.entries = {&entry, 1};
    parts.owned = h.pool.Get(count * 4);
    std::memset(parts.owned.data(), 0, count * 4);
    h.Deliver(0, wire::EncodeData(std::move(parts), h.pool));
    EXPECT_EQ(h.Answer(0), count == 1024
                               ? "applied"
                               : "0:invalid_argument@2 table \"bias\" has 1024 elements in slot 0, push "
                                 "has 1000: send whole slots, with the table's size");
  }
}

TEST_F(Pushes, ADroppedTableRefusesAndTheNumberIsUsedUp) {
  const TableId other = h.AddTable(ShardHarness::Sparse(Mode::kAsync, OptimizerKind::kSum));
  h.DropTable(table);
  EXPECT_EQ(Send(0, {{1, 1, 1}}), "1:not_found@1 table 1 has been dropped: create it again");
  table = other;
  EXPECT_EQ(Send(0, {{1, 3, 2}}), "applied");
  EXPECT_EQ(h.Stored(other, 1), 3.0f);
}

// Through the reader that bounds it: more than a coded request of an unknown table may have.
TEST_F(Pushes, ALargeCodedPushOfADroppedTableIsToldSoToo) {
  TableSpec spec;
  spec.name = "large";
  spec.size = 6'000'000;
  const TableId large = h.AddTable(spec);
  h.DropTable(large);
  const std::vector<float> zeros(4'800'000);
  ASSERT_GT(zeros.size() * sizeof(float), kMostUnknownBytes);
  wire::DataParts parts = h.Parts(0, wire::FrameType::kPush, large);
  wire::PushParams params;
  const std::vector<wire::SlotEntry> entries = {
      {0, 1'200'000, 1}, {1, 1'200'000, 1}, {2, 1'200'000, 1}, {3, 1'200'000, 1}};
  parts.params = &params;
  parts.entries = entries;
  parts.values = {std::as_bytes(std::span(zeros))};
  parts.coding = wire::Coding::kNonZero;
  const Buffer flat =
      wire::Flatten(*wire::CodeFrame(*wire::EncodeData(std::move(parts), h.pool), h.pool), h.pool);

  const transport::MostBody of_table = [&](ConnId, const wire::FrameHeader& header) {
    return h.shard->MostBodyBytes(header);
  };
  transport::FrameReader reader(h.pool, wire::kMaxBodyBytes, {.most_body = &of_table});
  ASSERT_LE(flat.size(), reader.Space()[0].size());
  std::memcpy(reader.Space()[0].data(), flat.data(), flat.size());
  reader.Filled(flat.size());
  wire::InFrame frame;
  const Result<bool> next = reader.Next(&frame);
  ASSERT_TRUE(next.ok()) << next.status().ToString();
  h.shard->OnMessage(h.conns[0], frame, h.now);
  const std::string answer = h.Answer(0);
  EXPECT_TRUE(answer.starts_with("0:not_found@1")) << answer;
  EXPECT_NE(answer.find("has been dropped: create it again"), std::string::npos) << answer;
}

TEST_F(Pushes, AnotherThreadsSlotIsUnavailableAndNothingOfTheFrameIsApplied) {
  EXPECT_EQ(Send(0, {{1, 1, 1}, {4, 1, 1}}),
            "error unavailable: server 0 thread 0 is not the owner of slot 4: it has 4 of 5 slots");
  EXPECT_EQ(h.Stored(table, 1), std::nullopt);
}

TEST_F(Pushes, NumberZeroIsAViolation) {
  EXPECT_TRUE(Send(0, {{1, 1, 0}}).starts_with("error protocol: server 0 thread 0: push number 0"));
  EXPECT_EQ(h.net.closed, std::vector<ConnId>{h.conns[0]});
}

TEST_F(Pushes, HyperParametersOfAPushMustBeFinite) {
  h.Deliver(0, h.Rows(0, wire::FrameType::kPush, table, Round{0}, {{1, 1, 1}},
                      {.lr = std::numeric_limits<float>::quiet_NaN()}));
  EXPECT_TRUE(h.Answer(0).starts_with("1:not_finite@1 table \"w\": lr nan must be finite"));
}

TEST_F(Pushes, ARefusalsWordsGoBeforeAGaps) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::string answer = Send(0, {{0, 1, 5}, {1, nan, 1}});
  EXPECT_TRUE(answer.starts_with("0:unavailable@1 1:not_finite@1 table \"w\"")) << answer;
}

}  // namespace
}  // namespace cairn::server
