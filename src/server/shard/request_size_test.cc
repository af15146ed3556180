// What a request may be large, by its table.
#include "server/shard/request_size.h"

#include <gtest/gtest.h>

namespace cairn::server {
namespace {

constexpr uint64_t kAround = 64 * 1024;  // sections that are not values

wire::FrameHeader Header(wire::FrameType type, uint32_t entries, uint32_t keys, uint16_t flags = 0) {
  wire::FrameHeader header;
  header.type = type;
  header.entry_count = entries;
  header.key_count = keys;
  header.flags = flags;
  return header;
}

TEST(RequestSize, ADensePushHasNoMoreThanItsTable) {
  TableSpec spec;
  spec.size = 1'000'000;
  const auto most = [&](wire::FrameType type) { return MostRequestBytes(Header(type, 8, 0), &spec, 8); };
  EXPECT_GE(most(wire::FrameType::kPush), 4'000'000u);
  EXPECT_LE(most(wire::FrameType::kPush), 4'000'000u + kAround);
  EXPECT_EQ(most(wire::FrameType::kContribute), most(wire::FrameType::kPush));
  EXPECT_LE(most(wire::FrameType::kPull), kAround);
  EXPECT_LE(most(wire::FrameType::kDone), kAround);
  spec.element = ElementType::kInt64;
  EXPECT_GE(most(wire::FrameType::kPush), 8'000'000u);
}

TEST(RequestSize, RowsAreAsManyAsKeys) {
  TableSpec spec;
  spec.kind = TableKind::kSparse;
  spec.dim = 16;
  const uint64_t most = MostRequestBytes(Header(wire::FrameType::kPush, 4, 1000), &spec, 8);
  EXPECT_GE(most, 1000u * (8 + 64));
  EXPECT_LE(most, 1000u * (8 + 64) + kAround);
  // Entries beyond the number of slots are none.
  EXPECT_LE(MostRequestBytes(Header(wire::FrameType::kPush, 1 << 24, 0), &spec, 8), kAround);
}

TEST(RequestSize, UnknownTablesAndOtherFrames) {
  EXPECT_EQ(MostRequestBytes(Header(wire::FrameType::kPush, 1, 0), nullptr, 8), wire::kMaxBodyBytes);
  EXPECT_EQ(MostRequestBytes(Header(wire::FrameType::kPush, 1, 0, wire::kFlagCoded), nullptr, 8),
            kMostUnknownBytes);
  EXPECT_EQ(MostRequestBytes(Header(wire::FrameType::kControl, 0, 0), nullptr, 8), kMostUnknownBytes);
  EXPECT_EQ(MostRequestBytes(Header(wire::FrameType::kPullReply, 0, 0), nullptr, 8),
            wire::kMaxUnauthenticatedBodyBytes);
  EXPECT_GT(MostRequestBytes(Header(wire::FrameType::kReplicate, 0, 0), nullptr, 8), wire::kMaxBodyBytes);
}

}  // namespace
}  // namespace cairn::server
