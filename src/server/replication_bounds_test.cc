// Two bounds of replication: what a slot's heir is compared with before it takes over (rule 51), and how
// much a backup has to keep while it is copied to (rule 43).
#include <map>

#include "server/owners_harness.h"
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
  options.most_later_bytes = 400;
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
  h.CarryOnce();         // the connection
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

}  // namespace
}  // namespace cairn::server
