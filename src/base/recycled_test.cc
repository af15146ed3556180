#include "base/recycled.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <unordered_set>
#include <vector>

namespace cairn {
namespace {

TEST(Recycled, ABlockIsUsedAgain) {
  if (!kRecycles) GTEST_SKIP() << "a sanitizer sees every block";
  for (const size_t bytes : {size_t{1}, size_t{64}, size_t{100}, kMostRecycledBytes}) {
    void* const first = TakeBlock(bytes);
    GiveBlock(first, bytes);
    void* const second = TakeBlock(bytes);
    EXPECT_EQ(first, second) << bytes;
    GiveBlock(second, bytes);
  }
}

TEST(Recycled, BlocksInUseDoNotOverlap) {
  std::vector<std::pair<uint8_t*, size_t>> blocks;
  for (size_t i = 0; i < 2000; ++i) {
    const size_t bytes = 1 + i * 37 % 9000;
    blocks.emplace_back(static_cast<uint8_t*>(TakeBlock(bytes)), bytes);
    std::memset(blocks.back().first, static_cast<int>(i % 251), bytes);
    if (i % 3 == 2) {  // so that some are used again
      GiveBlock(blocks[i / 3].first, blocks[i / 3].second);
      blocks[i / 3].first = nullptr;
    }
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto [block, bytes] = blocks[i];
    if (block == nullptr) continue;
    for (size_t b = 0; b < bytes; ++b) ASSERT_EQ(block[b], i % 251) << i;
    GiveBlock(block, bytes);
  }
}

// What is made on one thread and dies on another comes back to the first.
TEST(Recycled, BlocksComeBackFromAnotherThread) {
  if (!kRecycles) GTEST_SKIP() << "a sanitizer sees every block";
  constexpr size_t kBytes = 2048, kBlocks = 1000;
  std::unordered_set<void*> seen;
  const auto take_all = [&](std::vector<void*>& blocks) {
    for (size_t i = 0; i < kBlocks; ++i) blocks.push_back(TakeBlock(kBytes));
  };
  std::vector<void*> blocks;
  take_all(blocks);
  seen.insert(blocks.begin(), blocks.end());
  std::thread([&] {
    for (void* block : blocks) GiveBlock(block, kBytes);
  }).join();
  std::vector<void*> again;
  take_all(again);
  for (void* block : again) EXPECT_TRUE(seen.contains(block));
  for (void* block : again) GiveBlock(block, kBytes);
}

TEST(Recycled, WhatIsKeptIsBounded) {
  if (!kRecycles) GTEST_SKIP() << "a sanitizer sees every block";
  constexpr size_t kBlocks = 2 * kMostKeptBytes / kMostRecycledBytes;
  std::vector<void*> blocks;
  for (size_t i = 0; i < kBlocks; ++i) blocks.push_back(TakeBlock(kMostRecycledBytes));
  for (void* block : blocks) GiveBlock(block, kMostRecycledBytes);
  EXPECT_LE(SharedBlockBytes(), kMostKeptBytes);
  EXPECT_GT(SharedBlockBytes(), kMostKeptBytes / 2);
  // What is larger than the largest is not kept at all.
  const size_t before = SharedBlockBytes();
  GiveBlock(TakeBlock(kMostRecycledBytes + 1), kMostRecycledBytes + 1);
  EXPECT_EQ(SharedBlockBytes(), before);
}

// Objects of a thread that die after its lists: they go to the shared ones.
TEST(Recycled, AThreadsLastBlocksAreNotLost) {
  if (!kRecycles) GTEST_SKIP() << "with a sanitizer there are no lists";
  constexpr size_t kBytes = 8192, kBlocks = 40;
  struct Late {
    void* block = nullptr;
    ~Late() { GiveBlock(block, kBytes); }
  };
  std::vector<void*> large;  // so that the shared lists have room
  while (SharedBlockBytes() > kMostKeptBytes / 2) large.push_back(TakeBlock(kMostRecycledBytes));
  std::vector<void*> enough;
  for (size_t i = 0; i < 4 * kBlocks; ++i) enough.push_back(TakeBlock(kBytes));
  for (void* block : enough) GiveBlock(block, kBytes);
  const size_t before = SharedBlockBytes();
  std::thread([] {
    thread_local Late late;  // before the first block, so it dies after the lists
    late.block = nullptr;
    std::vector<void*> blocks;
    for (size_t i = 0; i < kBlocks; ++i) blocks.push_back(TakeBlock(kBytes));
    late.block = blocks.back();
    blocks.pop_back();
    for (void* block : blocks) GiveBlock(block, kBytes);
  }).join();
  EXPECT_EQ(SharedBlockBytes(), before) << "all came from the shared lists";
  for (void* block : large) GiveBlock(block, kMostRecycledBytes);
}

TEST(Recycled, ContainersAndPointers) {
  RecycledMap<int, RecycledVector<int>> map;
  for (int i = 0; i < 100; ++i) map[i].assign(static_cast<size_t>(i), i);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(map.at(i), RecycledVector<int>(static_cast<size_t>(i), i));
  const auto shared = MakeRecycled<std::pair<int, int>>(1, 2);
  const std::weak_ptr<std::pair<int, int>> weak = shared;
  EXPECT_EQ(weak.lock()->second, 2);
}

}  // namespace
}  // namespace cairn
