// How much memory bodies under receipt may take, per peer and in all.
#include "transport/tcp/receipt_budget.h"

#include <gtest/gtest.h>

namespace cairn::transport {
namespace {

TEST(ReceiptBudget, BoundsEachPeerAndAll) {
  ReceiptBudget budget({.per_peer = 100, .in_all = 250});
  EXPECT_TRUE(budget.Take("a", 60));
  EXPECT_FALSE(budget.Take("a", 60)) << "a's own bound";
  EXPECT_TRUE(budget.Take("a", 40));
  EXPECT_TRUE(budget.Take("b", 100));
  EXPECT_FALSE(budget.Take("c", 60)) << "nobody has room";
  EXPECT_TRUE(budget.Take("c", 50));
  budget.Give("b", 100);
  EXPECT_TRUE(budget.Take("c", 50));
  EXPECT_EQ(budget.taken(), 200u);
}

TEST(ReceiptBudget, OneBodyIsAlwaysReceived) {
  ReceiptBudget budget({.per_peer = 100, .in_all = 250});
  EXPECT_TRUE(budget.Take("a", 1000));
  EXPECT_FALSE(budget.Take("b", 1));
  budget.Give("a", 1000);
  EXPECT_EQ(budget.taken(), 0u);
  EXPECT_TRUE(budget.Take("b", 200)) << "larger than its share, but it has nothing else under way";
  EXPECT_FALSE(budget.Take("b", 1));
}

TEST(ReceiptBudget, LimitsFollowWhatIsLeft) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  EXPECT_EQ(ReceiptLimitsFor({}).in_all, UINT64_MAX);
  EXPECT_EQ(ReceiptLimitsFor({MemoryKind::kAddressSpace, 2 * kGiB, 0}).in_all, kGiB / 2);
  EXPECT_EQ(ReceiptLimitsFor({MemoryKind::kAddressSpace, 2 * kGiB, 0}).per_peer, kGiB / 4);
  EXPECT_EQ(ReceiptLimitsFor({MemoryKind::kMachine, 100 * kGiB, 0}).per_peer, kGiB);
  EXPECT_EQ(ReceiptLimitsFor({MemoryKind::kMachine, 0, 0}).in_all, kGiB / 16);
  EXPECT_EQ(ReceiptLimitsFor({MemoryKind::kMachine, 0, 0}).per_peer, kGiB / 32);
}

}  // namespace
}  // namespace cairn::transport
