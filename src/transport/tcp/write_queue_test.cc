// WriteQueue: whatever the socket takes at a time, the bytes leave in order, and a frame that was
// disowned is never read again.
#include "transport/tcp/write_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/random.h"

namespace cairn::transport {
namespace {

// A head of `head` bytes and spans that borrow from `memory`.
wire::FramePtr Borrowing(std::vector<std::byte>& memory, size_t head, size_t spans, BufferPool& pool) {
  auto frame = std::make_shared<wire::Frame>();
  frame->head = pool.Get(head);
  std::fill_n(frame->head.data(), head, std::byte{9});
  const size_t each = memory.size() / spans;
  for (size_t i = 0; i < spans; ++i) {
    frame->values.emplace_back(memory.data() + i * each, each);
    frame->values.emplace_back();  // empty spans are skipped
  }
  return frame;
}

std::vector<std::byte> BytesOf(const wire::Frame& frame) {
  std::vector<std::byte> all(frame.head.data(), frame.head.data() + frame.head.size());
  for (const auto& span : frame.values) all.insert(all.end(), span.begin(), span.end());
  return all;
}

// Writes up to `bytes` as a socket would.
void Write(WriteQueue& queue, size_t bytes, size_t pieces, std::vector<std::byte>* out) {
  std::vector<iovec> iov(pieces);
  const size_t filled = queue.Gather(iov, bytes);
  size_t written = 0;
  for (size_t i = 0; i < filled; ++i) {
    const auto* from = static_cast<const std::byte*>(iov[i].iov_base);
    out->insert(out->end(), from, from + iov[i].iov_len);
    written += iov[i].iov_len;
  }
  queue.Advance(written);
}

TEST(WriteQueue, BytesLeaveInOrderWhateverIsTaken) {
  BufferPool pool;
  Random random(3);
  std::vector<std::byte> memory(4000);
  for (std::byte& b : memory) b = static_cast<std::byte>(random.Next());
  WriteQueue queue;
  std::vector<std::byte> expected, got;
  for (size_t i = 0; i < 50; ++i) {
    const wire::FramePtr frame = Borrowing(memory, 64 + i, 1 + i % 7, pool);
    const auto bytes = BytesOf(*frame);
    expected.insert(expected.end(), bytes.begin(), bytes.end());
    queue.Push(frame);
  }
  EXPECT_EQ(queue.bytes(), expected.size());
  while (!queue.empty()) Write(queue, 1 + random.Below(9000), 1 + random.Below(5), &got);
  EXPECT_EQ(got, expected);
  EXPECT_EQ(queue.bytes(), 0u);
}

TEST(WriteQueue, DisownedMemoryIsNotReadAgain) {
  BufferPool pool;
  // Disowned before it is begun, in the middle of its head, of a span, and at the end of one.
  for (size_t before : {0, 10, 64, 500, 1064, 2063}) {
    std::vector<std::byte> memory(2000, std::byte{1}), others(100, std::byte{3});
    WriteQueue queue;
    const wire::FramePtr frame = Borrowing(memory, 64, 2, pool), other = Borrowing(others, 64, 1, pool);
    std::vector<std::byte> expected = BytesOf(*frame), got;
    for (const auto& more : {BytesOf(*other), BytesOf(*frame)})
      expected.insert(expected.end(), more.begin(), more.end());
    queue.Push(frame);
    queue.Push(other);
    queue.Push(frame);  // sent again
    if (before > 0) Write(queue, before, 64, &got);
    ASSERT_EQ(got.size(), before);
    queue.Disown(frame.get(), pool);
    EXPECT_EQ(frame.use_count(), 1);
    std::fill(memory.begin(), memory.end(), std::byte{2});
    EXPECT_EQ(queue.bytes(), expected.size() - before);
    while (!queue.empty()) Write(queue, 700, 3, &got);
    EXPECT_EQ(got, expected) << before;
  }
}

TEST(WriteQueue, TheFirstFrameGoesOnWhereItIsWhenALaterOneIsDisowned) {
  BufferPool pool;
  for (size_t before : {10, 64, 500, 2063}) {
    std::vector<std::byte> memory(2000), others(100, std::byte{3});
    for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * 7 / 3);
    WriteQueue queue;
    const wire::FramePtr first = Borrowing(memory, 64, 2, pool), later = Borrowing(others, 64, 1, pool);
    std::vector<std::byte> expected = BytesOf(*first), got;
    const auto more = BytesOf(*later);
    expected.insert(expected.end(), more.begin(), more.end());
    queue.Push(first);
    queue.Push(later);
    Write(queue, before, 64, &got);
    queue.Disown(later.get(), pool);
    std::fill(others.begin(), others.end(), std::byte{2});
    EXPECT_EQ(queue.bytes(), expected.size() - before);
    for (int i = 0; i < 20 && queue.bytes() > 0; ++i) Write(queue, 700, 3, &got);
    EXPECT_EQ(got, expected) << before;
  }
}

}  // namespace
}  // namespace cairn::transport
