// Bounds of replication: what a slot's heir is compared with before it takes over (rule 51), how much a
// backup has to keep while it is copied to (rule 43), and who is called slow.
#include <map>

#include "server/shard/owners_harness.h"
#include "wire/replica.h"

namespace cairn::server {
namespace {

TEST(HandingOver, TheHeirAloneIsComparedOnceWhenAllHaveEverything) {
  OwnersHarness h(3, 2);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kAsync));
  h.Carry();
  std::map<uint32_t, std::vector<wire::OpHeader>> hashes;  // of slot 0, by receiver
  h.on_operation = [&](uint32_t to, const wire::OpView& op) {
    if (op.header.kind == wire::OpKind::kHash && op.header.slot == 0) hashes[to].push_back(op.header);
  };
  h.stalled.insert(2);
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  for (wire::SlotOwner& owner : h.state.slots) owner.heir = 1;
  h.Publish();
  h.Carry();
  EXPECT_TRUE(hashes.empty()) << "server 2 has not confirmed the push";
  auto of_slot_0 = [&] {
    auto news = h.News(0, wire::SlotNews::kHandedOver);
    std::erase_if(news, [](const wire::SlotNews& n) { return n.slot != 0; });
    return news.size();
  };
  EXPECT_EQ(of_slot_0(), 0u);
  h.stalled.clear();
  h.Carry();
  for (int i = 0; i < 5; ++i) {
    h[0].shard->OnTick(h.now += 100'000);
    h.Carry();
  }
  EXPECT_EQ(of_slot_0(), 1u);
  EXPECT_TRUE(hashes[2].empty());
  ASSERT_EQ(hashes[1].size(), 1u);
  EXPECT_EQ(hashes[1][0].index, 1u) << "of all that there is";
  EXPECT_EQ(hashes[1][0].a, h[1].shard->ContentHash(SlotId{0}));
}

TEST(Copies, TooMuchThatComesLaterBringsTheRestAtOnce) {
  ShardOptions options;
  options.copy_chunk_bytes = 16;
  options.bounds.most_later_bytes = 400;
  OwnersHarness h(2, 0, options);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kAsync));
  for (uint64_t n = 1; n <= 20; ++n) h[0].Deliver(0, h[0].Push(0, table, {{0, 1, n}}));
  size_t chunks = 0, ends = 0;
  h.on_operation = [&](uint32_t, const wire::OpView& op) {
    if (op.header.slot != 0) return;
    chunks += op.header.kind == wire::OpKind::kChunk;
    ends += op.header.kind == wire::OpKind::kEnd;
  };
  h.AddBackup(1);
  h.CarryOnce();        // the connection
  h.stalled.insert(0);  // no confirmation comes back
  h.Carry();
  EXPECT_EQ(chunks, 4u) << "no more are under way";
  uint64_t number = 20;
  auto push = [&](int times) {
    for (int i = 0; i < times; ++i) h[0].Deliver(0, h[0].Push(0, table, {{0, 1, ++number}}));
    h[0].shard->OnTick(h.now += 100'000);
    h.Carry();
  };
  push(2);
  EXPECT_EQ(chunks, 4u);
  EXPECT_EQ(ends, 0u);
  push(60);
  EXPECT_EQ(ends, 1u) << "the backup would have to keep ever more";
  h.stalled.clear();
  h.Carry();
  EXPECT_EQ(h[1].Stored(table, 0), -static_cast<float>(number));
}

// A table that is made after a slot's content was taken is not part of it. The backup may hear of it
// before the copy begins there, or in the middle of it: either way it has the table with its initial
// values and optimizer state, and goes on from there.
class LateTable : public ::testing::TestWithParam<bool> {};
TEST_P(LateTable, IsThereThoughTheCopyDoesNotHaveIt) {
  ShardOptions options;
  const bool in_the_middle = GetParam();
  if (in_the_middle) options.copy_chunk_bytes = 16;
  OwnersHarness h(2, 0, options);
  const TableId rows = h.AddTable(ShardHarness::Sparse(Mode::kAsync));
  for (uint64_t n = 1; n <= 20; ++n)
    h[0].Deliver(0, h[0].Push(0, rows, {{0, 1, n}, {1, 1, n}, {2, 1, n}, {3, 1, n}, {4, 1, n}}));
  h[0].SkipAnswers();
  size_t begun = 0, ended = 0;
  h.on_operation = [&](uint32_t, const wire::OpView& op) {
    begun += op.header.kind == wire::OpKind::kBegin;
    ended += op.header.kind == wire::OpKind::kEnd;
  };
  h.AddBackup(1);
  h.CarryOnce();  // the connection: the first slot's content is taken when it is up
  if (in_the_middle) h.CarryOnce();
  ASSERT_EQ(begun, in_the_middle ? 1u : 0u);
  ASSERT_EQ(ended, 0u);
  TableSpec spec = DenseHarness::Dense(Mode::kAsync, OptimizerKind::kAdagrad);
  spec.init = Init::Constant(3);
  spec.initial_state = 1;
  const TableId async = h.AddTable(spec);
  spec.name = "rounds";
  spec.mode = Mode::kSync;
  const TableId sync = h.AddTable(spec);
  // Each slot's part has a mapping of its own, which comes from the system as zeros: a smaller one may
  // get back the very memory in which the initial values still are.
  spec.name = "large";
  spec.size = uint64_t{OwnersHarness::kSlots} * 300'000;
  if (!in_the_middle) h.AddTable(spec);
  h.Carry();
  EXPECT_EQ(ended, OwnersHarness::kSlots);
  ASSERT_EQ(h.News(0, wire::SlotNews::kCaughtUp).size(), OwnersHarness::kSlots);
  h.MarkInSync(1);
  h.Carry();
  const auto expect_same = [&](const char* when) {
    for (uint32_t slot = 0; slot < OwnersHarness::kSlots; ++slot)
      EXPECT_EQ(h[0].shard->ContentHash(SlotId{slot}), h[1].shard->ContentHash(SlotId{slot})) << slot << when;
  };
  expect_same(", before any push");
  h[0].Deliver(0, h[0].PushDense(0, async, {{0, 2, 21}, {3, 2, 21}}));
  for (uint32_t rank : {0u, 1u}) h[0].Deliver(rank, h[0].GiveDense(rank, sync, 0, {{0, 1, 0}, {3, 1, 0}}));
  h.Carry();
  expect_same(", after a push and a round");
  const auto values = [&](uint32_t server, TableId table) {
    h[server].SkipAnswers();
    return h[server].Column(table);
  };
  const std::string of_async = values(0, async), of_sync = values(0, sync);
  EXPECT_NE(of_async.find(" 3 3 "), std::string::npos) << of_async << ": slots 1 and 2 are as they began";
  EXPECT_NE(of_sync.find(" 3 3 "), std::string::npos) << of_sync;
  h.Fail(0, 1);
  EXPECT_EQ(values(1, async), of_async);
  EXPECT_EQ(values(1, sync), of_sync);
}
INSTANTIATE_TEST_SUITE_P(Copies, LateTable, ::testing::Bool(), [](const auto& tested) {
  return tested.param ? "HeardOfInTheMiddle" : "HeardOfBefore";
});

// Slots are copied one after the other: the last one waits for long, and nobody is slow.
TEST(Copies, ABackupWhoseCopyWaitsForItsTurnIsNotSlow) {
  ShardOptions options;
  options.copy_chunk_bytes = 16;
  options.bounds.copy_pieces_under_way = 1;
  OwnersHarness h(2, 0, options);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kAsync));
  for (uint32_t slot = 0; slot < OwnersHarness::kSlots; ++slot)
    h[0].Deliver(0, h[0].Push(0, table, {{slot, 2, 1}}));
  h.AddBackup(1);
  for (int i = 0; i < 2; ++i) {  // connected, and greeted
    h[0].shard->OnTick(h.now += 100'000);
    h.CarryOnce();
  }
  for (int tick = 1; tick <= 110; ++tick) {
    h[0].shard->OnTick(h.now += 100'000);
    EXPECT_TRUE(h.News(0, wire::SlotNews::kSlow).empty()) << tick;
    if (tick % 25 == 0) h.CarryOnce();
  }
  EXPECT_LT(h.News(0, wire::SlotNews::kCaughtUp).size(), OwnersHarness::kSlots)
      << "some wait for longer than slow_after";
}

TEST(SlowBackups, APauseOfItsOwnIsNoticedWhateverEndsIt) {
  for (const char* what : {"tick", "state", "connection"}) {
    OwnersHarness h(2, 1);
    const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kAsync));
    h.Carry();
    h.stalled = {1};
    h[0].Deliver(0, h[0].Push(0, table, {{3, 2, 1}}));
    h.now += 11'000'000;  // the process stood still
    if (what == std::string("state")) h.Publish();
    if (what == std::string("connection")) h[0].shard->OnConnected(ConnId{9999}, h.now);
    h[0].shard->OnTick(h.now += 1'000);
    EXPECT_TRUE(h.News(0, wire::SlotNews::kSlow).empty()) << what;
  }
}

}  // namespace
}  // namespace cairn::server
