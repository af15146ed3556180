// Coded frames: whatever is coded comes back bit by bit, whatever would not is sent as it is, and
// damaged or lying bytes are refused without memory being taken for what they claim.
#include "wire/coding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "wire/body_layout.h"
#include "wire/data.h"
#include "wire/nonzero_words.h"
#include "wire/wire_samples.h"

namespace cairn::wire {
namespace {

constexpr Coding kCodings[] = {Coding::kFloat16, Coding::kBfloat16, Coding::kNonZero, Coding::kLz4};

std::vector<std::byte> Bytes(const Frame& frame, BufferPool& pool) {
  const Buffer flat = Flatten(frame, pool);
  return {flat.data(), flat.data() + flat.size()};
}

// What a coding can make smaller without loss.
std::vector<float> Suitable(Coding coding, size_t count, Random& random) {
  std::vector<float> values(count);
  float last = 0;
  for (float& value : values) {
    const auto small = static_cast<float>(random.Below(256)) - 128.0f;
    const bool changes = coding != Coding::kLz4 || random.Chance(0.2);
    if (coding != Coding::kNonZero || random.Chance(0.1)) value = last = changes ? small : last;
  }
  return values;
}

// A push of rows in several pieces; all of it is random.
FramePtr MakePush(Coding coding, std::span<const float> values, Random& random, BufferPool& pool) {
  const auto rows = static_cast<uint32_t>(values.size());
  std::vector<SlotEntry> entries = {{3, rows / 2, random.Next()}, {7, rows - rows / 2, 2}};
  std::vector<uint64_t> keys(rows);
  for (uint64_t& key : keys) key = random.Next();
  PushParams params;
  params.lr = 0.5;
  DataParts parts = SampleParts(FrameType::kPush);
  parts.round = {};
  parts.params = &params;
  parts.entries = entries;
  parts.keys = keys;
  parts.owned = pool.Get(values.size_bytes());
  std::memcpy(parts.owned.data(), values.data(), values.size_bytes());
  const size_t cut = 4 * random.Below(values.size() + 1);
  const std::span<const std::byte> bytes = std::as_const(parts.owned).bytes();
  parts.values = {bytes.first(cut), {}, bytes.subspan(cut)};
  parts.coding = coding;
  return EncodeData(std::move(parts), pool);
}

Result<InFrame> Receive(std::span<const std::byte> bytes, BufferPool& pool, uint32_t limit = kMaxBodyBytes) {
  Result<InFrame> in = Parse(bytes, limit, pool);
  if (!in.ok()) return in;
  if ((in->header.flags & kFlagCoded) != 0) {
    if (Status s = DecodeFrame(&*in, limit, pool); !s.ok()) return s;
  }
  return in;
}

// With a right checksum, so that the decoder itself is asked.
void SealAgain(std::vector<std::byte>& bytes, BufferPool& pool) {
  Frame frame;
  frame.head = pool.Get(bytes.size());
  std::memcpy(frame.head.data(), bytes.data(), bytes.size());
  Seal(frame);
  std::memcpy(bytes.data(), frame.head.data(), bytes.size());
}

TEST(Coding, RandomFramesComeBack) {
  BufferPool pool;
  Random random(11);
  for (Coding coding : kCodings) {
    for (int i = 0; i < 200; ++i) {
      const size_t count = 200 + random.Below(i % 20 == 0 ? 200'000 : 2000);
      const std::vector<float> values = Suitable(coding, count, random);
      const FramePtr plain = MakePush(coding, values, random, pool);
      const FramePtr coded = CodeFrame(*plain, pool);
      ASSERT_NE(coded, nullptr) << static_cast<int>(coding) << " " << count;
      ASSERT_LT(coded->bytes(), plain->bytes());
      Result<InFrame> in = Receive(Bytes(*coded, pool), pool);
      ASSERT_TRUE(in.ok()) << in.status().message();
      const std::vector<std::byte> want = Bytes(*plain, pool);
      ASSERT_EQ(in->body().size() + sizeof(FrameHeader), want.size());
      ASSERT_EQ(std::memcmp(in->body().data(), want.data() + sizeof(FrameHeader), in->body().size()), 0);
      FrameHeader header = plain->header();
      header.checksum = 0;
      ASSERT_EQ(std::memcmp(&header, &in->header, sizeof(header)), 0);
      ASSERT_TRUE(DecodePush(in->header, in->body()).ok());
    }
  }
}

TEST(Coding, SizesAreWhatTheFormatSays) {
  BufferPool pool;
  Random random(12);
  const size_t count = 100'000;
  for (Coding coding : {Coding::kFloat16, Coding::kBfloat16}) {
    const FramePtr plain = MakePush(coding, Suitable(coding, count, random), random, pool);
    EXPECT_EQ(CodeFrame(*plain, pool)->bytes(), plain->bytes() - 2 * count + kCodedPrefixBytes);
  }
  std::vector<float> values(count);
  for (size_t i = 0; i < count; i += 100) values[i] = 0.1f;
  const FramePtr plain = MakePush(Coding::kNonZero, values, random, pool);
  EXPECT_EQ(CodeFrame(*plain, pool)->bytes(), plain->bytes() - 4 * count + 6 * 1000 + 4 + kCodedPrefixBytes);
}

TEST(Coding, WhatWouldLoseOrGrowIsSentAsItIs) {
  BufferPool pool;
  Random random(13);
  std::vector<float> values(1000);
  for (float& value : values) value = std::bit_cast<float>(static_cast<uint32_t>(random.Next()));
  for (Coding coding : kCodings) {  // random bits: too exact, never 0, nothing repeats
    EXPECT_EQ(CodeFrame(*MakePush(coding, values, random, pool), pool), nullptr) << static_cast<int>(coding);
  }
  std::vector<float> one_too_exact(1000, 1.0f);
  one_too_exact[777] = 0.1f;
  for (Coding coding : {Coding::kFloat16, Coding::kBfloat16})
    EXPECT_EQ(CodeFrame(*MakePush(coding, one_too_exact, random, pool), pool), nullptr);
  const std::vector<float> few(8);
  for (Coding coding : kCodings) EXPECT_EQ(CodeFrame(*MakePush(coding, few, random, pool), pool), nullptr);
}

TEST(Coding, WithoutAskingNothingIsCoded) {
  BufferPool pool;
  Random random(14);
  const std::vector<float> zeros(1000);
  EXPECT_EQ(CodeFrame(*MakePush(Coding::kPlain, zeros, random, pool), pool), nullptr);
}

TEST(Coding, DamagedBytesAreRefusedByTheChecksum) {
  BufferPool pool;
  Random random(15);
  for (Coding coding : kCodings) {
    const FramePtr plain = MakePush(coding, Suitable(coding, 400, random), random, pool);
    std::vector<std::byte> bytes = Bytes(*CodeFrame(*plain, pool), pool);
    for (size_t i = 0; i < bytes.size(); i += 3) {
      bytes[i] ^= std::byte{0x10};
      EXPECT_FALSE(Receive(bytes, pool).ok()) << i;
      bytes[i] ^= std::byte{0x10};
    }
    EXPECT_TRUE(Receive(bytes, pool).ok());
  }
}

// A peer that means harm computes the checksum too: no crash, no byte outside (sanitizers), and what
// is accepted has the size that it says.
TEST(Coding, LyingFramesAreRefusedOrHaveTheSizeTheySay) {
  BufferPool pool;
  Random random(16);
  int accepted = 0, refused = 0;
  for (Coding coding : kCodings) {
    const FramePtr plain = MakePush(coding, Suitable(coding, 300, random), random, pool);
    const std::vector<std::byte> good = Bytes(*CodeFrame(*plain, pool), pool);
    for (int i = 0; i < 3000; ++i) {
      std::vector<std::byte> bytes = good;
      for (uint64_t n = 1 + random.Below(3); n > 0; --n) {
        const size_t at = sizeof(FrameHeader) + random.Below(bytes.size() - sizeof(FrameHeader));
        bytes[at] = static_cast<std::byte>(random.Next());
      }
      if (random.Chance(0.3))
        bytes.resize(sizeof(FrameHeader) + random.Below(bytes.size() - sizeof(FrameHeader)));
      FrameHeader header;
      std::memcpy(&header, bytes.data(), sizeof(header));
      if (random.Chance(0.1)) header.key_count = static_cast<uint32_t>(random.Next());
      if (random.Chance(0.1)) header.entry_count = static_cast<uint32_t>(random.Next());
      std::memcpy(bytes.data(), &header, sizeof(header));
      SealAgain(bytes, pool);
      const uint32_t limit = uint32_t{1} << 20;
      const Result<InFrame> in = Receive(bytes, pool, limit);
      if (!in.ok()) {
        EXPECT_EQ(in.status().code(), Code::kProtocol);
        ++refused;
        continue;
      }
      ++accepted;
      EXPECT_LE(in->body().size(), limit);
      EXPECT_EQ(in->body().size(), in->header.body_bytes);
      (void)DecodePush(in->header, in->body());
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 0);
}

TEST(Coding, ABombTakesNoMemory) {
  BufferPool pool;
  Random random(17);
  const std::vector<float> zeros(1 << 20);
  for (Coding coding : {Coding::kNonZero, Coding::kLz4}) {
    const FramePtr plain = MakePush(coding, zeros, random, pool);
    if (coding == Coding::kLz4) std::memset(plain->head.data() + 512, 0, plain->head.size() - 512);  // keys
    if (coding == Coding::kLz4) Seal(*plain);
    const std::vector<std::byte> bytes = Bytes(*CodeFrame(*plain, pool), pool);
    const uint32_t limit = kMaxUnauthenticatedBodyBytes;
    BufferPool fresh;
    InFrame in;  // as if the limit were only about what travels
    std::memcpy(&in.header, bytes.data(), sizeof(in.header));
    in.storage = pool.Get(bytes.size() - sizeof(in.header));
    std::memcpy(in.storage.data(), bytes.data() + sizeof(in.header), in.storage.size());
    const Status refused = DecodeFrame(&in, limit, fresh);
    EXPECT_EQ(refused.code(), Code::kProtocol);
    EXPECT_EQ(fresh.allocated_bytes(), 0u);
  }
}

TEST(Coding, OnlyFramesWithSectionsAndNeverRefusals) {
  FrameHeader header;
  header.flags = kFlagCoded;
  header.body_bytes = 100;
  for (FrameType type : {FrameType::kControl, FrameType::kPushReply, FrameType::kError, FrameType::kReplicate,
                         FrameType::kReplicaAck, FrameType::kClock}) {
    header.type = type;
    EXPECT_FALSE(CheckHeader(header, kMaxBodyBytes).ok()) << static_cast<int>(type);
  }
  header.type = FrameType::kRoundReply;
  EXPECT_TRUE(CheckHeader(header, kMaxBodyBytes).ok());
  header.flags |= kFlagRefused;
  EXPECT_FALSE(CheckHeader(header, kMaxBodyBytes).ok());
  header.flags = kFlagCoded;
  header.body_bytes = kCodedPrefixBytes - 1;
  EXPECT_FALSE(CheckHeader(header, kMaxBodyBytes).ok());
}

TEST(Coding, DecodersDoNotTakeABodyThatIsStillCoded) {
  BufferPool pool;
  Random random(18);
  const FramePtr plain = MakePush(Coding::kNonZero, std::vector<float>(500), random, pool);
  const Result<InFrame> in = Parse(Bytes(*CodeFrame(*plain, pool), pool), kMaxBodyBytes, pool);
  ASSERT_TRUE(in.ok());
  EXPECT_EQ(DecodePush(in->header, in->body()).status().code(), Code::kProtocol);
}

TEST(NonZeroWords, LongGapsAndPieces) {
  Random random(19);
  for (int i = 0; i < 100; ++i) {
    std::vector<uint32_t> words(1 + random.Below(300'000));
    const uint64_t values = random.Below(6);
    for (uint64_t v = 0; v < values; ++v) words[random.Below(words.size())] = 0x80000000u;
    if (i == 0) words.assign(65535 * 2 + 1, 0), words.back() = 1;  // exactly two full gaps
    const auto bytes = std::as_bytes(std::span(words));
    const size_t cut = 4 * random.Below(words.size() + 1);
    NonZeroWriter writer;
    writer.Count(bytes.first(cut));
    writer.Count(bytes.subspan(cut));
    std::vector<std::byte> coded(writer.bytes());
    writer.Begin(coded.data());
    writer.Put(bytes.first(cut));
    writer.Put(bytes.subspan(cut));
    std::vector<uint32_t> back(words.size(), 7);
    ASSERT_TRUE(ReadNonZero(coded, std::as_writable_bytes(std::span(back))));
    ASSERT_EQ(back, words);
    if (back.back() != 0) {  // one word less has no place for it
      std::vector<uint32_t> shorter(words.size() - 1);
      EXPECT_FALSE(ReadNonZero(coded, std::as_writable_bytes(std::span(shorter))));
    }
    coded.pop_back();
    EXPECT_FALSE(ReadNonZero(coded, std::as_writable_bytes(std::span(back))));
  }
}

// Between values, and into memory that was something else before, as that of a pool is.
TEST(NonZeroWords, GapsAboutAFullOne) {
  for (uint32_t gap : {65534, 65535, 65536, 2 * 65535 - 1, 2 * 65535, 2 * 65535 + 1}) {
    std::vector<uint32_t> words(2 * gap + 7);
    words[gap] = 1, words[gap + 3] = 2, words[2 * gap + 4] = 3;
    NonZeroWriter writer;
    writer.Count(std::as_bytes(std::span(words)));
    std::vector<std::byte> coded(writer.bytes(), std::byte{0x55});
    writer.Begin(coded.data());
    writer.Put(std::as_bytes(std::span(words)));
    std::vector<uint32_t> back(words.size(), 7);
    EXPECT_TRUE(ReadNonZero(coded, std::as_writable_bytes(std::span(back)))) << gap;
    EXPECT_TRUE(back == words) << gap;
  }
}

}  // namespace
}  // namespace cairn::wire
