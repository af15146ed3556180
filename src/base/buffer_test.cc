// Pool buffers: aligned, used again, bounded, and free to outlive their pool.
#include "base/buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace cairn {
namespace {

TEST(Buffer, IsAlignedAndAsLongAsAsked) {
  BufferPool pool;
  for (size_t size : {0ul, 1ul, 64ul, 511ul, 512ul, 513ul, 65537ul, (16ul << 20) + 1}) {
    Buffer buffer = pool.Get(size);
    EXPECT_EQ(buffer.size(), size);
    EXPECT_GE(buffer.capacity(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    std::memset(buffer.data(), 0xAB, buffer.size());
  }
}

TEST(Buffer, ComesBackFromThePool) {
  BufferPool pool;
  const std::byte* first = pool.Get(5000).data();
  const size_t allocated = pool.allocated_bytes();
  Buffer again = pool.Get(8000);  // the same class
  EXPECT_EQ(again.data(), first);
  EXPECT_EQ(pool.allocated_bytes(), allocated);
  Buffer other = pool.Get(8000);  // the first one is still out
  EXPECT_NE(other.data(), first);
  EXPECT_EQ(pool.allocated_bytes(), 2 * allocated);
}

TEST(Buffer, SizeClassesDoNotMixAndLargeOnesWasteLittle) {
  BufferPool pool;
  EXPECT_EQ(pool.Get(1).capacity(), 512u);
  EXPECT_EQ(pool.Get(513).capacity(), 1024u);
  EXPECT_EQ(pool.Get(16u << 20).capacity(), 16u << 20);
  EXPECT_EQ(pool.Get((16u << 20) + 1).capacity(), 18u << 20);
}

TEST(Buffer, PoolKeepsNoMoreThanItsBound) {
  BufferPool pool(1024);
  {
    const Buffer a = pool.Get(1024), b = pool.Get(1024);
  }
  EXPECT_EQ(pool.allocated_bytes(), 2048u);
  const Buffer a = pool.Get(1024);  // kept
  EXPECT_EQ(pool.allocated_bytes(), 2048u);
  const Buffer b = pool.Get(1024);  // was given back to the system
  EXPECT_EQ(pool.allocated_bytes(), 3072u);
}

TEST(Buffer, MovesLeaveNothingBehind) {
  BufferPool pool;
  Buffer a = pool.Get(100);
  a.data()[0] = std::byte{7};
  Buffer b = std::move(a);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT: the contract says so
  EXPECT_TRUE(a.empty());
  EXPECT_EQ(b.data()[0], std::byte{7});
  a = std::move(b);
  EXPECT_EQ(a.size(), 100u);
  Buffer& same = a;
  a = std::move(same);
  EXPECT_EQ(a.size(), 100u);
  a = Buffer();
  EXPECT_EQ(a.capacity(), 0u);
}

TEST(Buffer, ResizeKeepsTheContents) {
  BufferPool pool;
  Buffer a = pool.Get(100);
  a.data()[99] = std::byte{9};
  a.Resize(10);
  EXPECT_EQ(a.bytes().size(), 10u);
  a.Resize(a.capacity());
  EXPECT_EQ(a.data()[99], std::byte{9});
  EXPECT_DEATH(a.Resize(a.capacity() + 1), "broken invariant");
}

TEST(Buffer, OutlivesItsPool) {
  std::optional<BufferPool> pool(std::in_place);
  Buffer buffer = pool->Get(100);
  pool.reset();
  buffer.data()[0] = std::byte{1};
  EXPECT_EQ(buffer.data()[0], std::byte{1});
}

TEST(Buffer, MayDieOnAnyThread) {
  BufferPool pool;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, given = pool.Get(4096)]() mutable {
      given = Buffer();
      for (int i = 0; i < 1000; ++i) {
        Buffer buffer = pool.Get(static_cast<size_t>(i) * 16);
        if (!buffer.empty()) std::memset(buffer.data(), i, buffer.size());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(pool.allocated_bytes(), 4u * (512 + 1024 + 2048 + 4096 + 8192 + 16384 + 4096));
}

TEST(Buffer, WhatIsTakenOutOfThePoolMakesRoomInIt) {
  BufferPool pool(1024);
  for (int i = 0; i < 5; ++i) (void)pool.Get(1024);
  EXPECT_EQ(pool.allocated_bytes(), 1024u);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which end the program instead
TEST(Buffer, WhereThereIsNoMoreWhatWasKeptIsGivenUp) {
  BufferPool pool(1024);
  (void)pool.Get(1024);
  Buffer same = pool.Get(1);
  EXPECT_FALSE(pool.TryGet(size_t{1} << 60, &same));
  EXPECT_EQ(same.size(), 1u);
  const size_t before = pool.allocated_bytes();
  (void)pool.Get(1024);
  EXPECT_EQ(pool.allocated_bytes(), before + 1024) << "it was given back to the system";
  (void)pool.Get(1024);
  EXPECT_EQ(pool.allocated_bytes(), before + 1024) << "and is kept again";
}
#endif

}  // namespace
}  // namespace cairn
