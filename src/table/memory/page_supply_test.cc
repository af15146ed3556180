// Pages come touched, whole and each once, and an arena that has them works as one that has none.
#include "table/memory/page_supply.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "table/memory/arena.h"

namespace cairn::table {
namespace {

bool Resident(const std::byte* page) {
  std::vector<unsigned char> in(PageSupply::kPageBytes / 4096);
  if (mincore(const_cast<std::byte*>(page), PageSupply::kPageBytes, in.data()) != 0) return false;
  return std::ranges::all_of(in, [](unsigned char bits) { return (bits & 1) != 0; });
}

// Null now and then is allowed: the machine may be busy.
std::byte* TakeOne(PageSupply& supply) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < end) {
    if (std::byte* page = supply.Take(); page != nullptr) return page;
    std::this_thread::yield();
  }
  return nullptr;
}

TEST(PageSupply, PagesAreTouchedAlignedZeroAndGivenOnce) {
  PageSupply supply;
  EXPECT_EQ(supply.Take(), nullptr);  // nobody had asked before
  std::set<std::byte*> pages;
  for (size_t i = 0; i < PageSupply::kAhead + 3; ++i) {
    std::byte* const page = TakeOne(supply);
    ASSERT_NE(page, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(page) % PageSupply::kPageBytes, 0u);
    EXPECT_TRUE(Resident(page));
    EXPECT_TRUE(
        std::all_of(page, page + PageSupply::kPageBytes, [](std::byte b) { return b == std::byte{0}; }));
    EXPECT_TRUE(pages.insert(page).second);
  }
  for (std::byte* page : pages) munmap(page, PageSupply::kPageBytes);
}

TEST(PageSupply, NobodyAskedAndNobodyTookAll) {
  PageSupply idle, used;
  EXPECT_EQ(used.Take(), nullptr);
}  // both end at once, the second with pages that nobody took

TEST(PageSupply, SeveralArenasShareIt) {
  PageSupply supply;
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&supply, t] {
      Arena arena(&supply);
      std::vector<std::byte*> pieces;
      constexpr size_t kBytes = 100'000;
      for (int i = 0; i < 250; ++i) {  // 25 MB
        pieces.push_back(arena.Take(kBytes));
        std::memset(pieces.back(), i + t, kBytes);
      }
      for (int i = 0; i < 250; ++i) {
        const auto mark = static_cast<std::byte>(i + t);
        EXPECT_TRUE(std::all_of(pieces[i], pieces[i] + kBytes, [&](std::byte b) { return b == mark; })) << i;
        arena.Give(pieces[i], kBytes);
      }
      EXPECT_LE(arena.mapped_bytes(), 40u << 20);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace cairn::table
