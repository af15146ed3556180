// FrameReader: however the bytes are cut, the same frames come out.
#include "transport/tcp/frame_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "wire/coding.h"
#include "wire/data.h"

namespace cairn::transport {
namespace {

std::vector<std::byte> Stream(std::span<const size_t> sizes, BufferPool& pool) {
  std::vector<std::byte> all;
  for (size_t i = 0; i < sizes.size(); ++i) {
    wire::PushParams params;
    wire::DataParts parts;
    parts.request_id = i;
    parts.params = &params;
    parts.owned = pool.Get(sizes[i]);
    std::fill_n(parts.owned.data(), sizes[i], static_cast<std::byte>(i));
    parts.values.emplace_back(parts.owned.bytes());
    const Buffer flat = wire::Flatten(*wire::EncodeData(std::move(parts), pool), pool);
    all.insert(all.end(), flat.data(), flat.data() + flat.size());
  }
  return all;
}

// Feeds `bytes` in random pieces of at most `most`; gives the frames' ids and body sizes.
void Feed(FrameReader& reader, std::span<const std::byte> bytes, size_t most, Random& random,
          std::vector<std::pair<uint64_t, size_t>>* frames) {
  while (!bytes.empty()) {
    const auto space = reader.Space();
    ASSERT_FALSE(space[0].empty());
    size_t n = std::min({bytes.size(), space[0].size() + space[1].size(), 1 + random.Below(most)});
    const size_t first = std::min(n, space[0].size());
    std::memcpy(space[0].data(), bytes.data(), first);
    if (n > first) std::memcpy(space[1].data(), bytes.data() + first, n - first);
    reader.Filled(n);
    bytes = bytes.subspan(n);
    wire::InFrame frame;
    for (;;) {
      const Result<bool> next = reader.Next(&frame);
      ASSERT_TRUE(next.ok()) << next.status().ToString();
      if (!*next) break;
      const auto body = frame.body();
      if (body.size() > sizeof(wire::PushParams)) {
        EXPECT_EQ(body.back(), static_cast<std::byte>(frame.header.request_id));
      }
      frames->emplace_back(frame.header.request_id, body.size());
    }
  }
}

// What is copied twice is what goes through the inbound buffer.
TEST(FrameReader, BodiesOfLargeFramesGoStraightToTheirPlace) {
  BufferPool pool;
  FrameReader reader(pool, wire::kMaxBodyBytes);
  const std::vector<size_t> sizes(8, 300'000);
  const std::vector<std::byte> stream = Stream(sizes, pool);
  std::span<const std::byte> bytes = stream;
  size_t frames = 0, reads = 0;
  wire::InFrame frame;
  for (; !bytes.empty(); ++reads) {
    const auto space = reader.Space();
    if (frames > 0) {
      EXPECT_LE(reader.in_body() ? space[1].size() : space[0].size(), sizeof(wire::FrameHeader));
    }
    const size_t first = std::min(bytes.size(), space[0].size());
    const size_t second = std::min(bytes.size() - first, space[1].size());
    std::memcpy(space[0].data(), bytes.data(), first);
    if (second > 0) std::memcpy(space[1].data(), bytes.data() + first, second);
    reader.Filled(first + second);
    bytes = bytes.subspan(first + second);
    for (Result<bool> next = true; *next;) {
      next = reader.Next(&frame);
      ASSERT_TRUE(next.ok());
      frames += *next;
    }
  }
  EXPECT_EQ(frames, sizes.size());
  EXPECT_LE(reads, 2 * sizes.size() + 1) << "no more reads than pieces";
  reader.Reset();  // from here on it only drains
  EXPECT_EQ(reader.Space()[0].size(), FrameReader::kInboundBytes);
}

TEST(FrameReader, AnyCutGivesTheSameFrames) {
  BufferPool pool;
  const size_t sizes[] = {0, 1, 64, 100, 65'000, 65'408, 65'536, 70'000, 3, 300'000, 0, 524'288, 7};
  const std::vector<std::byte> bytes = Stream(sizes, pool);
  for (size_t most : {size_t{3}, size_t{64}, size_t{1000}, size_t{70'000}, size_t{1} << 20}) {
    Random random(most);
    FrameReader reader(pool, wire::kMaxBodyBytes);
    std::vector<std::pair<uint64_t, size_t>> frames;
    Feed(reader, bytes, most, random, &frames);
    ASSERT_EQ(frames.size(), std::size(sizes));
    for (size_t i = 0; i < frames.size(); ++i) {
      EXPECT_EQ(frames[i].first, i);
      EXPECT_EQ(frames[i].second, sizes[i] + sizeof(wire::PushParams));
    }
    EXPECT_TRUE(reader.rest().empty());
  }
}

TEST(FrameReader, WhatIsNotOursIsSeenAfterFourBytes) {
  BufferPool pool;
  FrameReader reader(pool, wire::kMaxBodyBytes);
  std::memcpy(reader.Space()[0].data(), "GET", 3);
  reader.Filled(3);
  wire::InFrame frame;
  Result<bool> next = reader.Next(&frame);
  ASSERT_TRUE(next.ok());
  EXPECT_FALSE(*next);
  std::memcpy(reader.Space()[0].data(), " ", 1);
  reader.Filled(1);
  EXPECT_EQ(reader.Next(&frame).status().code(), Code::kProtocol);
}

TEST(FrameReader, NoMemoryIsTakenForABodyBeyondTheLimit) {
  BufferPool pool;
  const size_t sizes[] = {1'000'000};
  const std::vector<std::byte> bytes = Stream(sizes, pool);
  BufferPool fresh;
  FrameReader reader(fresh, 1000);
  const size_t before = fresh.allocated_bytes();
  std::memcpy(reader.Space()[0].data(), bytes.data(), sizeof(wire::FrameHeader));
  reader.Filled(sizeof(wire::FrameHeader));
  wire::InFrame frame;
  EXPECT_EQ(reader.Next(&frame).status().code(), Code::kProtocol);
  EXPECT_EQ(fresh.allocated_bytes(), before);
}

TEST(FrameReader, CodedFramesComeOutPlainAndTheLimitIsAboutThat) {
  BufferPool pool;
  const std::vector<float> zeros(50'000);
  const std::vector<wire::SlotEntry> entries = {{0, 50'000, 1}};
  wire::PushParams params;
  wire::DataParts parts;
  parts.params = &params;
  parts.entries = entries;
  parts.values = {std::as_bytes(std::span(zeros))};
  parts.coding = wire::Coding::kLz4;
  const wire::FramePtr plain = wire::EncodeData(std::move(parts), pool);
  const Buffer flat = wire::Flatten(*wire::CodeFrame(*plain, pool), pool);
  ASSERT_LT(flat.size(), 5'000u);
  for (const bool enough : {true, false}) {
    FrameReader reader(pool, enough ? wire::kMaxBodyBytes : 100'000);
    std::memcpy(reader.Space()[0].data(), flat.data(), flat.size());
    reader.Filled(flat.size());
    wire::InFrame frame;
    const Result<bool> next = reader.Next(&frame);
    if (!enough) {
      EXPECT_EQ(next.status().code(), Code::kProtocol);
      continue;
    }
    ASSERT_TRUE(next.ok() && *next);
    EXPECT_EQ(frame.body().size(), plain->header().body_bytes);
    EXPECT_EQ(wire::DecodePush(frame.header, frame.body())->values.size(), zeros.size() * 4);
  }
}

// 256 MiB of zeros in some hundred bytes: memory is taken by what the table may have, not by what they say.
TEST(FrameReader, ACodedFrameUnfoldsNoFurtherThanItsTable) {
  BufferPool pool;
  for (wire::Coding coding : {wire::Coding::kNonZero, wire::Coding::kLz4}) {
    const std::vector<float> zeros(2'000'000);
    const std::vector<wire::SlotEntry> entries = {{0, 2'000'000, 1}};
    wire::PushParams params;
    wire::DataParts parts;
    parts.params = &params;
    parts.entries = entries;
    parts.values = {std::as_bytes(std::span(zeros))};
    parts.coding = coding;
    const Buffer flat =
        wire::Flatten(*wire::CodeFrame(*wire::EncodeData(std::move(parts), pool), pool), pool);
    ASSERT_LT(flat.size(), FrameReader::kInboundBytes);
    uint64_t most = 0;
    const MostBody of_table = [&](ConnId, const wire::FrameHeader& header) {
      EXPECT_NE(header.flags & wire::kFlagCoded, 0);
      return most;
    };
    for (const bool enough : {true, false}) {
      most = enough ? 8'100'000 : 100'000;
      BufferPool fresh;
      FrameReader reader(fresh, wire::kMaxBodyBytes, {.most_body = &of_table});
      std::memcpy(reader.Space()[0].data(), flat.data(), flat.size());
      reader.Filled(flat.size());
      wire::InFrame frame;
      const Result<bool> next = reader.Next(&frame);
      EXPECT_EQ(next.ok(), enough);
      if (enough) continue;
      EXPECT_EQ(next.status().code(), Code::kProtocol);
      EXPECT_LT(fresh.allocated_bytes(), 1'000'000u);
    }
  }
}

TEST(FrameReader, APlainBodyIsHeldToItsTableToo) {
  BufferPool pool;
  const size_t sizes[] = {1'000'000};
  const std::vector<std::byte> bytes = Stream(sizes, pool);
  const MostBody of_table = [](ConnId, const wire::FrameHeader&) { return uint64_t{500'000}; };
  BufferPool fresh;
  FrameReader reader(fresh, wire::kMaxBodyBytes, {.most_body = &of_table});
  const size_t before = fresh.allocated_bytes();
  std::memcpy(reader.Space()[0].data(), bytes.data(), sizeof(wire::FrameHeader));
  reader.Filled(sizeof(wire::FrameHeader));
  wire::InFrame frame;
  EXPECT_EQ(reader.Next(&frame).status().code(), Code::kProtocol);
  EXPECT_EQ(fresh.allocated_bytes(), before);
}

TEST(FrameReader, ABodyWaitsForRoomAndGivesItBack) {
  BufferPool pool;
  const size_t sizes[] = {1'000'000};
  const std::vector<std::byte> bytes = Stream(sizes, pool);
  ReceiptBudget budget({.per_peer = 1'500'000, .in_all = 10'000'000});
  const auto begin = [&](FrameReader& reader) {
    std::memcpy(reader.Space()[0].data(), bytes.data(), sizeof(wire::FrameHeader));
    reader.Filled(sizeof(wire::FrameHeader));
    wire::InFrame frame;
    const Result<bool> next = reader.Next(&frame);
    EXPECT_TRUE(next.ok() && !*next);
  };
  auto first =
      std::make_unique<FrameReader>(pool, wire::kMaxBodyBytes, ReadGuards{.receipts = &budget, .peer = "a"});
  FrameReader second(pool, wire::kMaxBodyBytes, {.receipts = &budget, .peer = "a"});
  FrameReader other(pool, wire::kMaxBodyBytes, {.receipts = &budget, .peer = "b"});
  begin(*first), begin(second), begin(other);
  EXPECT_TRUE(first->has_receipt() && other.has_receipt());
  EXPECT_TRUE(second.starved());
  first.reset();  // its connection is lost
  wire::InFrame frame;
  const Result<bool> next = second.Next(&frame);
  EXPECT_TRUE(next.ok() && !*next);
  EXPECT_TRUE(second.has_receipt() && !second.starved());
  // To the end of the body: then it no longer counts.
  for (size_t at = sizeof(wire::FrameHeader); at < bytes.size();) {
    const std::span<std::byte> space = second.Space()[0];
    const size_t count = std::min(space.size(), bytes.size() - at);
    std::memcpy(space.data(), bytes.data() + at, count);
    second.Filled(count);
    at += count;
  }
  const Result<bool> whole = second.Next(&frame);
  ASSERT_TRUE(whole.ok() && *whole);
  EXPECT_FALSE(second.has_receipt());
  EXPECT_EQ(budget.taken(), other.has_receipt() ? bytes.size() - sizeof(wire::FrameHeader) : 0);
}

// A reader that had room meanwhile begins to wait from the beginning.
TEST(FrameReader, HowLongItWaitsForRoomIsCountedEachTimeAnew) {
  BufferPool pool;
  const size_t sizes[] = {1'000'000};
  const std::vector<std::byte> bytes = Stream(sizes, pool);
  ReceiptBudget budget({.per_peer = 1'500'000, .in_all = 10'000'000});
  wire::InFrame frame;
  const auto begin = [&](FrameReader& reader) {
    std::memcpy(reader.Space()[0].data(), bytes.data(), sizeof(wire::FrameHeader));
    reader.Filled(sizeof(wire::FrameHeader));
    EXPECT_TRUE(reader.Next(&frame).ok());
  };
  FrameReader reader(pool, wire::kMaxBodyBytes, {.receipts = &budget, .peer = "a"});
  EXPECT_EQ(reader.StarvedUs(50), 0);
  for (const int64_t begun_us : {100, 5000}) {
    auto other = std::make_unique<FrameReader>(pool, wire::kMaxBodyBytes,
                                               ReadGuards{.receipts = &budget, .peer = "a"});
    begin(*other);
    begin(reader);
    ASSERT_TRUE(reader.starved());
    EXPECT_EQ(reader.StarvedUs(begun_us), 0);
    EXPECT_EQ(reader.StarvedUs(begun_us + 700), 700);
    other.reset();
    EXPECT_TRUE(reader.Next(&frame).ok());
    ASSERT_TRUE(reader.has_receipt());
    for (size_t at = sizeof(wire::FrameHeader); at < bytes.size();) {
      const std::span<std::byte> space = reader.Space()[0];
      const size_t count = std::min(space.size(), bytes.size() - at);
      std::memcpy(space.data(), bytes.data() + at, count);
      reader.Filled(count);
      at += count;
    }
    const Result<bool> whole = reader.Next(&frame);
    ASSERT_TRUE(whole.ok() && *whole);
  }
}

TEST(FrameReader, AReaderThatOnlyDrainsHoldsNoRoom) {
  BufferPool pool;
  const size_t sizes[] = {1'000'000};
  const std::vector<std::byte> bytes = Stream(sizes, pool);
  ReceiptBudget budget({.per_peer = 1'500'000, .in_all = 10'000'000});
  FrameReader first(pool, wire::kMaxBodyBytes, {.receipts = &budget, .peer = "a"});
  FrameReader second(pool, wire::kMaxBodyBytes, {.receipts = &budget, .peer = "a"});
  wire::InFrame frame;
  for (FrameReader* reader : {&first, &second}) {
    std::memcpy(reader->Space()[0].data(), bytes.data(), sizeof(wire::FrameHeader));
    reader->Filled(sizeof(wire::FrameHeader));
    const Result<bool> next = reader->Next(&frame);
    EXPECT_TRUE(next.ok() && !*next);
  }
  ASSERT_TRUE(first.has_receipt() && second.starved());
  first.Reset();
  second.Reset();
  EXPECT_EQ(budget.taken(), 0u);
  EXPECT_FALSE(second.starved());
}

TEST(FrameReader, SmallBodiesDoNotCountAndAreReadManyAtATime) {
  BufferPool pool;
  const size_t sizes[] = {300'000, 100};
  const std::vector<std::byte> bytes = Stream(sizes, pool);
  ReceiptBudget budget({.per_peer = 1'000'000, .in_all = 1'000'000});
  FrameReader reader(pool, wire::kMaxBodyBytes, {.receipts = &budget, .peer = "a"});
  Random random(1);
  std::vector<std::pair<uint64_t, size_t>> frames;
  Feed(reader, bytes, 70'000, random, &frames);
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(reader.Space()[0].size(), FrameReader::kInboundBytes) << "the last one was small";
  ASSERT_TRUE(budget.Take("a", 1'000'000));
  frames.clear();
  const size_t small[] = {100, 60'000};
  Feed(reader, Stream(small, pool), 70'000, random, &frames);
  EXPECT_EQ(frames.size(), 2u) << "there is no room, and none is needed";
}

}  // namespace
}  // namespace cairn::transport
