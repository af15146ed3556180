// Primaries that can't go on with a slot say so and serve nothing of it (docs/internals/consistency.md, rule
// 44): promoted without a whole copy, or at the end of what positions can count.
#include <algorithm>
#include <cstring>

#include "server/shard/owners_harness.h"

namespace cairn::server {
namespace {

constexpr const char* kNotHere = "is not the owner of slot";

TEST(Ruin, ACopyThatIsNotWholeServesNothingAndSaysSo) {
  OwnersHarness h(3, 1);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kAsync));
  h.Carry();
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  h.Carry();
  h.stalled.insert(2);  // nothing of the copy gets there
  h.AddBackup(2);
  h.Carry();
  // The scheduler never does this: only owners in sync are promoted.
  h.Fail(0, 2);
  const auto news = h.News(2, wire::SlotNews::kNotWhole);
  ASSERT_EQ(news.size(), OwnersHarness::kSlots);
  EXPECT_EQ(news[0].server, 2);
  EXPECT_EQ(news[0].epoch, 2u);
  h[2].Deliver(0, h[2].Push(0, table, {{0, 2, 1}}));
  EXPECT_NE(h[2].Answer(0).find(kNotHere), std::string::npos);
  // A copy that replaces it makes it good again.
  h.stalled.clear();
  for (wire::SlotOwner& owner : h.state.slots)
    owner = {1,
             0,
             owner.epoch + 1,
             h.state.version.Next(),
             wire::kNoServer,
             {{2, 0, false, h.state.version.Next()}}};
  h.Publish();
  h.Carry();
  h.Fail(1, 2);
  EXPECT_TRUE(h.News(2, wire::SlotNews::kNotWhole).empty());
}

// Sets where copies to server 1 are in the slot's order.
void MoveCopies(OwnersHarness& h, uint64_t index) {
  h.alter = [index](uint32_t to, wire::InFrame& frame) {
    if (to != 1 || frame.header.type != wire::FrameType::kReplicate) return;
    std::span<std::byte> body = frame.storage.bytes();
    while (body.size() >= sizeof(wire::OpHeader)) {
      wire::OpHeader header;
      std::memcpy(static_cast<void*>(&header), body.data(), sizeof(header));
      header.index = index;
      std::memcpy(body.data(), &header, sizeof(header));
      body = body.subspan(header.bytes);
    }
  };
}

TEST(Ruin, ASlotStopsBeforeItsPositionsBeginAgain) {
  for (const bool spent : {false, true}) {
    std::vector<std::string> lines;
    ShardOptions options;
    options.log = [&](const std::string& line) { lines.push_back(line); };
    OwnersHarness h(2, 0, options);
    const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kAsync));
    MoveCopies(h, spent ? Position::kMaxIndex - 1000 : Position::kMaxIndex / 16 * 15);
    h.AddBackup(1);
    h.Carry();
    h.MarkInSync(1);
    h.Carry();
    h.alter = nullptr;
    h.Fail(0, 1);
    EXPECT_TRUE(h.News(1, wire::SlotNews::kNotWhole).empty());
    for (int i = 0; i < 3; ++i) h[1].shard->OnTick(h.now += 100'000);
    EXPECT_EQ(
        std::count_if(lines.begin(), lines.end(),
                      [](const std::string& line) { return line.ends_with("before they are used up"); }),
        long{OwnersHarness::kSlots})
        << "each once";
    EXPECT_EQ(h.News(1, wire::SlotNews::kSpent).size(), spent ? OwnersHarness::kSlots : 0);
    h[1].Deliver(0, h[1].Push(0, table, {{0, 2, 1}}));
    const std::string answer = h[1].Answer(0);
    if (spent) {
      EXPECT_NE(answer.find(kNotHere), std::string::npos) << answer;
    } else {
      EXPECT_EQ(answer, "applied");
    }
  }
}

TEST(Ruin, AnOperationBeyondAllPositionsIsRefused) {
  OwnersHarness h(2, 0);
  (void)h.AddTable(ShardHarness::Sparse(Mode::kAsync));
  MoveCopies(h, Position::kMaxIndex + 1);
  h.AddBackup(1);
  h.Carry();
  EXPECT_EQ(h[1].shard->Received(SlotId{0}), Position{});
  EXPECT_TRUE(h.News(0, wire::SlotNews::kCaughtUp).empty());
}

}  // namespace
}  // namespace cairn::server
