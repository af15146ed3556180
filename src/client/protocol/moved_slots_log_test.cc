// Log lines about slots that have other owners.
#include "client/protocol/moved_slots_log.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cairn::client {
namespace {

class MovedSlotsLogTest : public ::testing::Test {
 protected:
  MovedSlotsLogTest() {
    for (uint32_t i = 0; i < 3; ++i) before.servers.push_back({i, Incarnation{1 + i}, {"10.0.0.1", 7000}, 1});
    for (uint16_t slot = 0; slot < 6; ++slot)
      before.slots.push_back({static_cast<uint16_t>(slot % 3), 0, 1, {}});
    now = before;
  }
  wire::ClusterState before, now;
  std::vector<std::string> lines;
  const LogLine add = [this](const std::string& line) { lines.push_back(line); };
  MovedSlotsLog log{add, 1000};
};

TEST_F(MovedSlotsLogTest, AServerThatIsGoneIsNamedWithItsHeirs) {
  std::erase_if(now.servers, [](const auto& server) { return server.index == 1; });
  now.slots[1].server = 0;
  now.slots[4].server = 2;
  log.OnNewMap(before, now, 10);
  EXPECT_EQ(lines, std::vector<std::string>{"server 1 is gone; its partitions are now on servers 0, 2"});
}

TEST_F(MovedSlotsLogTest, ManySlotsThatMoveAreOneLineEverySoOften) {
  now.slots[0].server = 1;
  log.OnNewMap(before, now, 10);
  EXPECT_EQ(lines, std::vector<std::string>{"1 partition has moved to server 1"});
  before = now;
  now.slots[3].server = 2;
  log.OnNewMap(before, now, 20);
  before = now;
  now.slots[2].server = 1;
  log.OnNewMap(before, now, 30);
  EXPECT_EQ(lines.size(), 1u);
  log.OnTick(1009);
  EXPECT_EQ(lines.size(), 1u);
  log.OnTick(1010);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1], "2 partitions have moved to servers 1, 2");
  log.OnTick(5000);
  EXPECT_EQ(lines.size(), 2u);
}

}  // namespace
}  // namespace cairn::client
