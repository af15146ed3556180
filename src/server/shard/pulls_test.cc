// Pulls: values with positions, nothing created, sync pulls wait for their round.
#include <cstring>
#include <tuple>

#include "server/shard/shard_harness.h"

namespace cairn::server {
namespace {

TEST(PullsTest, MissingRowsReadAsTheirInitialValueAndAreNotStored) {
  ShardHarness h(1);
  TableSpec spec = ShardHarness::Sparse(Mode::kAsync, OptimizerKind::kSum);
  spec.init = Init::Constant(0.5f);
  const TableId table = h.AddTable(spec);
  h.SkipAnswers();
  h.Deliver(0, h.Push(0, table, {{2, 1.0f, 1}}));
  EXPECT_EQ(h.Answer(0), "applied");
  h.Deliver(0, h.Pull(0, table, {1, 2}));
  auto answer = h.Next(0);
  auto values = wire::DecodeValues(answer->header, answer->body());
  EXPECT_EQ(values->entries[0].number, Position::Of(1, 0).packed);
  EXPECT_EQ(values->entries[1].number, Position::Of(1, 1).packed);
  EXPECT_EQ(ShardHarness::Describe(answer), "values 0.5 1.5");
  EXPECT_EQ(h.Stored(table, 1), std::nullopt);
}

TEST(PullsTest, DenseSlotsComeWhole) {
  ShardHarness h(1);
  TableSpec spec;
  spec.name = "dense";
  spec.size = 5 * 1024;
  const TableId table = h.AddTable(spec);
  h.SkipAnswers();
  wire::DataParts parts = h.Parts(0, wire::FrameType::kPull, table);
  const wire::SlotEntry entries[2] = {{0, 1024, 0}, {3, 1024, 0}};
  parts.entries = entries;
  h.Deliver(0, wire::EncodeData(std::move(parts), h.pool));
  auto answer = h.Next(0);
  auto values = wire::DecodeValues(answer->header, answer->body());
  ASSERT_TRUE(values.ok());
  EXPECT_EQ(values->values.size(), 2u * 1024 * 4);
  EXPECT_EQ(values->entries[1].count, 1024u);
}

TEST(PullsTest, WrongPullsAreErrorsWithNames) {
  ShardHarness h(1);
  TableSpec spec;
  spec.name = "dense";
  spec.size = 5 * 1024;
  const TableId dense = h.AddTable(spec);
  const TableId sparse = h.AddTable(ShardHarness::Sparse(Mode::kAsync));
  h.SkipAnswers();
  h.Deliver(0, h.Pull(0, dense, {1}));
  EXPECT_EQ(
      h.Answer(0),
      "error invalid_argument: table \"dense\" is dense, pull has 1 keys: use a sparse table or leave the "
      "keys out");
  h.Deliver(0, h.Pull(0, sparse, {1}, 0));
  EXPECT_TRUE(h.Answer(0).starts_with("error invalid_argument: table \"w\" is asynchronous, a sync pull"));
  h.Deliver(0, h.Pull(0, sparse, {4}));
  EXPECT_TRUE(h.Answer(0).starts_with("error unavailable: server 0 thread 0 is not the owner of slot 4"));
  h.Deliver(0, h.Pull(0, TableId{9}, {1}));
  EXPECT_EQ(h.Answer(0), "error invalid_argument: there never was a table 9");
  h.DropTable(sparse);
  h.Deliver(0, h.Pull(0, sparse, {1}));
  EXPECT_TRUE(h.Answer(0).starts_with("error not_found"));
}

TEST(PullsTest, ASyncPullWaitsUntilEverySlotHasClosedTheRound) {
  ShardHarness h(2);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kSync));
  h.SkipAnswers();
  h.Deliver(1, h.Pull(1, table, {1, 2}, 0));
  EXPECT_EQ(h.Answer(1), "values 0 0") << "no round has to be closed for it";
  h.Deliver(1, h.Pull(1, table, {1, 2}, 1));
  h.Deliver(1, h.Done(1, table, 0));
  h.Deliver(0, h.Contribute(0, table, 0, {{1, 2.0f}}, {.done = std::vector<uint32_t>{1, 2}}));
  EXPECT_EQ(h.Open(table, 1), 1u);
  EXPECT_EQ(h.Answer(1), "");
  h.Deliver(0, h.Contribute(0, table, 0, {{2, 4.0f}}, {}));
  EXPECT_EQ(h.Answer(1), "values -1 -2");
  EXPECT_EQ(h.Answer(1), "closed");
}

TEST(PullsTest, WithoutTheFlagASyncTableAnswersAtOnce) {
  ShardHarness h(2);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kSync));
  h.SkipAnswers();
  h.Deliver(0, h.Give(0, table, 0, 1, 2.0f));
  h.Deliver(1, h.Pull(1, table, {1}));
  EXPECT_EQ(h.Answer(1), "values 0") << "what is staged is not seen";
}

TEST(PullsTest, AParkedPullIsAnsweredOnItsLatestConnectionOnly) {
  ShardHarness h(1);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kSync));
  wire::FramePtr pull = h.Pull(0, table, {1}, 1);
  h.Deliver(0, pull);
  const ConnId old = h.conns[0];
  h.Connect(0);
  h.Deliver(0, pull);
  h.SkipAnswers();
  h.Deliver(0, h.Give(0, table, 0, 1, 1.0f));
  EXPECT_EQ(ShardHarness::Describe(h.NextOn(old)), "");
  EXPECT_EQ(h.Answer(0), "values -1");
  EXPECT_EQ(h.Answer(0), "closed");
  EXPECT_EQ(h.Answer(0), "");
}

TEST(PullsTest, ParkedRequestsAreBoundedInBytes) {
  ShardHarness h(2);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kSync));
  h.SkipAnswers();
  // Keys of slot 1, a megabyte of them a request.
  std::vector<RowKey> keys;
  for (RowKey key = 0; keys.size() < 128 * 1024; ++key)
    if (wire::SlotOfKey(key, ShardHarness::kSlots).value == 1) keys.push_back(key);
  const wire::SlotEntry entry{1, static_cast<uint32_t>(keys.size()), 0};
  int parked = 0;
  std::string answer;
  for (; parked < 400 && answer.empty(); ++parked) {
    wire::DataParts parts = h.Parts(0, wire::FrameType::kPull, table);
    parts.flags = wire::kFlagSyncPull;
    parts.round = Round{1};
    parts.entries = {&entry, 1};
    parts.keys = keys;
    h.Deliver(0, wire::EncodeData(std::move(parts), h.pool));
    answer = h.Answer(0);
  }
  EXPECT_TRUE(answer.starts_with("error resource_exhausted")) << answer;
  EXPECT_LE(parked, 258);
  h.Deliver(1, h.Pull(1, table, {1}, 1));  // another worker's still has room
  EXPECT_EQ(h.Answer(1), "");
}

TEST(PullsTest, ARoundFarAheadIsRefused) {
  ShardHarness h(2);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kSync));
  h.SkipAnswers();
  h.Deliver(0, h.Pull(0, table, {1}, 1'000'000));
  EXPECT_TRUE(h.Answer(0).starts_with("error invalid_argument")) << "it would be parked for ever";
}

TEST(PullsTest, ValuesAreRoundedToTheTablesFormatAndStateIsNot) {
  ShardHarness h(1);
  for (const auto& [format, given, rounded] :
       {std::tuple{WireFormat::kBfloat16, 1.001f, 1.0f}, {WireFormat::kFloat16, 1e6f, 65504.0f}}) {
    for (const TableKind kind : {TableKind::kSparse, TableKind::kDense}) {
      TableSpec spec = ShardHarness::Sparse(Mode::kAsync, OptimizerKind::kAdagrad);
      spec.kind = kind;
      if (kind == TableKind::kDense) spec.dim = 0, spec.size = 5 * 1024;
      spec.wire = format;
      spec.init = Init::Constant(given);
      spec.initial_state = 1.001f;
      const TableId table = h.AddTable(spec);
      h.SkipAnswers();
      const auto first_of = [&](uint8_t column) {
        wire::DataParts parts = h.Parts(0, wire::FrameType::kPull, table);
        const wire::SlotEntry entry{1, kind == TableKind::kDense ? 1024u : 1u, column};
        const uint64_t key = ShardHarness::KeyIn(1);
        parts.entries = {&entry, 1};
        if (kind == TableKind::kSparse) parts.keys = {&key, 1};
        h.Deliver(0, wire::EncodeData(std::move(parts), h.pool));
        const auto answer = h.Next(0);
        const auto values = wire::DecodeValues(answer->header, answer->body());
        float first = 0;
        if (values.ok() && values->values.size() >= 4) std::memcpy(&first, values->values.data(), 4);
        return first;
      };
      EXPECT_EQ(first_of(0), rounded);
      EXPECT_EQ(first_of(1), 1.001f);
    }
  }
}

TEST(PullsTest, AnAnswersValuesAreCheckedIfTheAskerWantsThat) {
  ShardHarness h(1);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kAsync));
  h.SkipAnswers();
  for (const uint16_t checked : {uint16_t{0}, uint16_t{wire::kFlagValuesChecked}}) {
    wire::FramePtr pull = h.Pull(0, table, {1});
    pull->header().flags |= checked;
    wire::Seal(*pull);
    h.Deliver(0, pull);
    EXPECT_EQ(h.Next(0)->header.flags & wire::kFlagValuesChecked, checked);
  }
}

}  // namespace
}  // namespace cairn::server
