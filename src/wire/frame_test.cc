// Headers, checksums and whole frames: what is undamaged comes through, everything else is refused.
#include "wire/frame.h"

#include <gtest/gtest.h>

#include <cstring>

#include "wire/body_layout.h"
#include "wire/wire_samples.h"

namespace cairn::wire {
namespace {

std::vector<NamedFrame> Everything(BufferPool& pool) {
  std::vector<NamedFrame> all = SampleData(pool);
  for (NamedFrame& sample : SampleReplication(pool)) all.push_back(std::move(sample));
  for (const ControlMessage& m : SampleControl()) all.push_back({Name(m), EncodeControl(m, pool)});
  return all;
}

FrameHeader Good(FrameType type) {
  FrameHeader header;
  header.type = type;
  header.body_bytes = 4096;
  return header;
}

TEST(Frame, HeaderIsLittleEndianAndWhereTheSpecificationSaysItIs) {
  BufferPool pool;
  const Buffer bytes = Flatten(*EncodeControl(Leave{Incarnation{12}}, pool), pool);
  EXPECT_EQ(std::memcmp(bytes.data(), "CARN", 4), 0);
  EXPECT_EQ(bytes.data()[4], std::byte{1});
  EXPECT_EQ(bytes.data()[5], std::byte{1});
  EXPECT_EQ(offsetof(FrameHeader, flags), 6u);
  EXPECT_EQ(offsetof(FrameHeader, request_id), 8u);
  EXPECT_EQ(offsetof(FrameHeader, incarnation), 16u);
  EXPECT_EQ(offsetof(FrameHeader, state_version), 24u);
  EXPECT_EQ(offsetof(FrameHeader, round), 32u);
  EXPECT_EQ(offsetof(FrameHeader, table), 40u);
  EXPECT_EQ(offsetof(FrameHeader, entry_count), 44u);
  EXPECT_EQ(offsetof(FrameHeader, key_count), 48u);
  EXPECT_EQ(offsetof(FrameHeader, body_bytes), 52u);
  EXPECT_EQ(offsetof(FrameHeader, checksum), 56u);
}

TEST(Frame, EveryFrameParsesToWhatWasSent) {
  BufferPool pool;
  for (const NamedFrame& sample : Everything(pool)) {
    SCOPED_TRACE(sample.name);
    const Buffer bytes = Flatten(*sample.frame, pool);
    ASSERT_EQ(bytes.size(), sample.frame->bytes());
    Result<InFrame> in = Parse(bytes.bytes(), kMaxBodyBytes, pool);
    ASSERT_TRUE(in.ok()) << in.status().ToString();
    EXPECT_EQ(std::memcmp(&in->header, bytes.data(), sizeof(FrameHeader)), 0);
    ASSERT_EQ(in->body().size() + sizeof(FrameHeader), bytes.size());
    if (!in->body().empty()) {
      EXPECT_EQ(std::memcmp(in->body().data(), bytes.data() + sizeof(FrameHeader), in->body().size()), 0);
    }
    EXPECT_EQ(reinterpret_cast<uintptr_t>(in->body().data()) % kAlignment, 0u);
  }
}

TEST(Frame, TruncatedAtAnyLengthIsRefused) {
  BufferPool pool;
  for (const NamedFrame& sample : Everything(pool)) {
    SCOPED_TRACE(sample.name);
    const Buffer bytes = Flatten(*sample.frame, pool);
    for (size_t n = 0; n < bytes.size(); ++n) {
      EXPECT_FALSE(Parse(bytes.bytes().first(n), kMaxBodyBytes, pool).ok()) << n;
    }
  }
}

TEST(Frame, OneByteTooManyIsRefused) {
  BufferPool pool;
  for (const NamedFrame& sample : Everything(pool)) {
    const Buffer bytes = Flatten(*sample.frame, pool);
    std::vector<std::byte> longer(bytes.bytes().begin(), bytes.bytes().end());
    longer.push_back(std::byte{0});
    EXPECT_FALSE(Parse(longer, kMaxBodyBytes, pool).ok()) << sample.name;
  }
}

// Any damaged byte is noticed, but for values that the sender left out of the checksum.
TEST(Frame, AnyDamagedByteThatTheChecksumCoversIsRefused) {
  BufferPool pool;
  for (const NamedFrame& sample : Everything(pool)) {
    SCOPED_TRACE(sample.name);
    Buffer bytes = Flatten(*sample.frame, pool);
    const bool values_checked = (sample.frame->header().flags & kFlagValuesChecked) != 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      for (std::byte bit : {std::byte{0x01}, std::byte{0x80}}) {
        bytes.data()[i] ^= bit;
        const bool accepted = Parse(bytes.bytes(), kMaxBodyBytes, pool).ok();
        bytes.data()[i] ^= bit;
        const bool covered = values_checked || i < sample.frame->head.size();
        EXPECT_EQ(accepted, !covered) << "byte " << i;
      }
    }
  }
}

TEST(Frame, ValuesCheckedCoversValuesInSeveralPieces) {
  BufferPool pool;
  const PushParams params;
  const SlotEntry entries[] = {{0, 4, 1}};
  const Buffer values = SampleFloats(4, pool);
  DataParts parts = SampleParts(FrameType::kPush);
  parts.flags = kFlagValuesChecked;
  parts.params = &params;
  parts.entries = entries;
  parts.values = {values.bytes().first(4), {}, values.bytes().subspan(4)};
  Buffer bytes = Flatten(*EncodeData(std::move(parts), pool), pool);
  EXPECT_TRUE(Parse(bytes.bytes(), kMaxBodyBytes, pool).ok());
  bytes.data()[bytes.size() - 1] ^= std::byte{1};
  EXPECT_FALSE(Parse(bytes.bytes(), kMaxBodyBytes, pool).ok());
}

TEST(Frame, SealAgainAfterNumbering) {
  BufferPool pool;
  FramePtr frame = std::move(SampleData(pool)[0].frame);
  MutableEntries(*frame)[1].number = 1234;
  frame->header().request_id = 99;
  EXPECT_FALSE(Parse(Flatten(*frame, pool).bytes(), kMaxBodyBytes, pool).ok());
  Seal(*frame);
  Result<InFrame> in = Parse(Flatten(*frame, pool).bytes(), kMaxBodyBytes, pool);
  ASSERT_TRUE(in.ok());
  EXPECT_EQ(in->header.request_id, 99u);
  EXPECT_EQ(DecodePush(in->header, in->body())->entries[1].number, 1234u);
}

TEST(CheckHeader, RefusesMagicVersionTypeAndFlags) {
  EXPECT_TRUE(CheckHeader(Good(FrameType::kPush), kMaxBodyBytes).ok());
  FrameHeader header = Good(FrameType::kPush);
  header.magic ^= 1;
  EXPECT_EQ(CheckHeader(header, kMaxBodyBytes).code(), Code::kProtocol);
  for (int version : {0, 2, 255}) {
    header = Good(FrameType::kPush);
    header.version = static_cast<uint8_t>(version);
    EXPECT_FALSE(CheckHeader(header, kMaxBodyBytes).ok()) << version;
  }
  for (int type : {0, 12, 255})
    EXPECT_FALSE(CheckHeader(Good(static_cast<FrameType>(type)), kMaxBodyBytes).ok());
  for (int bit = 0; bit < 16; ++bit) {
    header = Good(FrameType::kPush);
    header.flags = static_cast<uint16_t>(1 << bit);
    EXPECT_EQ(CheckHeader(header, kMaxBodyBytes).ok(),
              (header.flags & (kFlagValuesChecked | kFlagTrip | kFlagCoded)) != 0)
        << bit;
    header.type = FrameType::kRoundReply;
    const bool known = (header.flags & (kFlagPullAfter | kFlagValuesChecked | kFlagRefused | kFlagReport |
                                        kFlagAllJoined | kFlagCoded)) != 0;
    EXPECT_EQ(CheckHeader(header, kMaxBodyBytes).ok(), known) << bit;
  }
}

TEST(CheckHeader, OnlyRequestsMayBeginARoundTrip) {
  for (int type = 1; type <= 11; ++type) {
    FrameHeader header = Good(static_cast<FrameType>(type));
    header.flags = kFlagTrip;
    const bool request = HasParams(header.type) || header.type == FrameType::kPull;
    EXPECT_EQ(CheckHeader(header, kMaxBodyBytes).ok(), request) << type;
  }
}

TEST(CheckHeader, LimitsTheBody) {
  FrameHeader header = Good(FrameType::kPush);
  EXPECT_TRUE(CheckHeader(header, 4096).ok());
  EXPECT_FALSE(CheckHeader(header, 4095).ok());
  header.body_bytes = kMaxBodyBytes;
  EXPECT_TRUE(CheckHeader(header, UINT32_MAX).ok());
  header.body_bytes = kMaxBodyBytes + 1;
  EXPECT_FALSE(CheckHeader(header, UINT32_MAX).ok());
  header = Good(FrameType::kControl);
  header.body_bytes = kMaxControlBytes + 1;
  EXPECT_FALSE(CheckHeader(header, kMaxBodyBytes).ok());
  // An operation can be a whole push, and more; but only for those who take the largest frames.
  header = Good(FrameType::kReplicate);
  header.body_bytes = kMaxBodyBytes + kOpRoom;
  EXPECT_TRUE(CheckHeader(header, kMaxBodyBytes).ok());
  EXPECT_FALSE(CheckHeader(header, kMaxBodyBytes - 1).ok());
  ++header.body_bytes;
  EXPECT_FALSE(CheckHeader(header, UINT32_MAX).ok());
  header.body_bytes = kMaxUnauthenticatedBodyBytes + 1;
  EXPECT_FALSE(CheckHeader(header, kMaxUnauthenticatedBodyBytes).ok());
}

TEST(CheckHeader, EntriesAndKeysMustFitWhateverTheirNumber) {
  FrameHeader header = Good(FrameType::kPush);
  header.entry_count = (4096 - 128) / 16;
  EXPECT_TRUE(CheckHeader(header, kMaxBodyBytes).ok());
  ++header.entry_count;
  EXPECT_FALSE(CheckHeader(header, kMaxBodyBytes).ok());
  // Counts whose byte lengths overflow 32 bits.
  header.entry_count = 0x10000000;
  EXPECT_FALSE(CheckHeader(header, kMaxBodyBytes).ok());
  header.entry_count = 0;
  header.key_count = 0x20000000;
  EXPECT_FALSE(CheckHeader(header, kMaxBodyBytes).ok());
  header.key_count = header.entry_count = UINT32_MAX;
  EXPECT_FALSE(CheckHeader(header, kMaxBodyBytes).ok());
  header = Good(FrameType::kPush);
  header.body_bytes = 63;
  EXPECT_FALSE(CheckHeader(header, kMaxBodyBytes).ok());
}

TEST(CheckHeader, EntriesAndKeysOnlyWhereTheyBelong) {
  for (FrameType type : {FrameType::kControl, FrameType::kError, FrameType::kReplicate, FrameType::kClock,
                         FrameType::kClockReply}) {
    FrameHeader header = Good(type);
    header.entry_count = 1;
    EXPECT_FALSE(CheckHeader(header, kMaxBodyBytes).ok());
  }
  for (FrameType type : {FrameType::kControl, FrameType::kError, FrameType::kPushReply, FrameType::kPullReply,
                         FrameType::kRoundReply, FrameType::kReplicate, FrameType::kReplicaAck,
                         FrameType::kClock, FrameType::kClockReply}) {
    FrameHeader header = Good(type);
    header.key_count = 1;
    EXPECT_FALSE(CheckHeader(header, kMaxBodyBytes).ok());
  }
}

TEST(CheckHeader, ClocksHaveNoBody) {
  for (FrameType type : {FrameType::kClock, FrameType::kClockReply}) {
    FrameHeader header = Good(type);
    header.body_bytes = 0;
    EXPECT_TRUE(CheckHeader(header, kMaxBodyBytes).ok());
    header.body_bytes = 1;
    EXPECT_FALSE(CheckHeader(header, kMaxBodyBytes).ok());
  }
}

}  // namespace
}  // namespace cairn::wire
