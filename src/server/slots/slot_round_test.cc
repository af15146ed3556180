// An open round that is summed up, as bytes of a copy: its contributors come back in the order of ranks, and
// bytes that have them in another order, or twice, are not taken.
#include "server/slots/slot_round.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace cairn::server {
namespace {

using Contributors = std::vector<std::pair<uint32_t, uint64_t>>;  // rank, incarnation

std::vector<std::byte> Summed(const Contributors& contributors) {
  ByteWriter out;
  out.Put(double{2});   // the divisor
  out.Put(uint8_t{1});  // there is something to report
  out.Put(wire::SlotReport{});
  out.Put(uint64_t{0});  // contributors for an observer
  out.Put(uint64_t{contributors.size()});
  for (const auto& [rank, incarnation] : contributors) {
    out.Put(incarnation);
    out.Put(rank);
    out.Put(double{1});
    SaveStatus(Status::Ok(), out);
  }
  return out.Take();
}

bool Loads(const Contributors& contributors, SlotRound* round) {
  const std::vector<std::byte> bytes = Summed(contributors);
  ByteReader in(bytes);
  return round->LoadSummed(Round{7}, in) && in.at_end();
}

TEST(SlotRound, ContributorsOfACopyComeBack) {
  SlotRound round;
  ASSERT_TRUE(Loads({{0, 11}, {1, 4}, {1, 12}}, &round));
  EXPECT_EQ(round.open(), Round{7});
  ASSERT_NE(round.summed(), nullptr);
  EXPECT_EQ(round.contributions().all().size(), 3u);
  EXPECT_NE(round.contributions().Find(Rank{1}, Incarnation{12}), nullptr);
  EXPECT_FALSE(round.contributions().HasUnfolded());
}

TEST(SlotRound, ContributorsOutOfOrderAreNotTaken) {
  for (const Contributors& wrong : {Contributors{{1, 4}, {0, 11}}, Contributors{{1, 4}, {1, 4}}}) {
    SlotRound round;
    EXPECT_FALSE(Loads(wrong, &round));
  }
}

}  // namespace
}  // namespace cairn::server
