// How large an answer may be, by what was asked.
#include "client/links/answer_size.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "client/protocol/fake_cluster.h"
#include "transport/tcp/frame_reader.h"
#include "wire/coding.h"

namespace cairn::client {
namespace {

using wire::FrameType;

constexpr uint64_t kAround = 8 * 1024;  // what is not values, with few slots
constexpr size_t kSlots = 16;

wire::FrameHeader Header(FrameType type, uint64_t request = 1) {
  wire::FrameHeader header;
  header.type = type;
  header.request_id = request;
  return header;
}

TEST(AnswerSize, ValuesAreAsManyAsWereAskedFor) {
  const AnswerSize size;
  for (const FrameType type : {FrameType::kPullReply, FrameType::kRoundReply}) {
    EXPECT_GE(size.MostBytes(Header(type), 1'000'000, kSlots), 1'000'000u);
    EXPECT_LE(size.MostBytes(Header(type), 1'000'000, kSlots), 1'000'000u + kAround);
    EXPECT_LE(size.MostBytes(Header(type), 0, kSlots), kAround);
    EXPECT_EQ(size.MostBytes(Header(type), std::nullopt, kSlots), wire::kMaxUnauthenticatedBodyBytes);
  }
}

TEST(AnswerSize, EverySlotMayBeNamed) {
  const AnswerSize size;
  const uint64_t entries = wire::kMaxSlots * sizeof(wire::SlotEntry);
  EXPECT_GE(size.MostBytes(Header(FrameType::kPushReply), 0, wire::kMaxSlots), entries + wire::kMaxTextBytes);
  EXPECT_GE(size.MostBytes(Header(FrameType::kRoundReply), 0, wire::kMaxSlots),
            entries + wire::kMaxSlots * sizeof(wire::SlotReport));
  EXPECT_LE(size.MostBytes(Header(FrameType::kPushReply), 1'000'000, kSlots), kAround);
}

TEST(AnswerSize, WhatIsLetGoMayStillBeAnswered) {
  AnswerSize size;
  size.LetGo(2'000'000);
  size.LetGo(1'000'000);
  const wire::FrameHeader header = Header(FrameType::kPullReply);
  EXPECT_GE(size.MostBytes(header, std::nullopt, kSlots), 2'000'000u);
  EXPECT_LE(size.MostBytes(header, std::nullopt, kSlots), 2'000'000u + kAround);
  EXPECT_GE(size.MostBytes(header, 3'000'000, kSlots), 3'000'000u);
  size.Reset();
  EXPECT_EQ(size.MostBytes(header, std::nullopt, kSlots), wire::kMaxUnauthenticatedBodyBytes);
}

TEST(AnswerSize, OtherFramesDoNotDependOnRequests) {
  AnswerSize size;
  size.LetGo(100'000'000);
  EXPECT_EQ(size.MostBytes(Header(FrameType::kControl), 0, kSlots), wire::kMaxControlBytes);
  for (const FrameType type : {FrameType::kError, FrameType::kPush, FrameType::kPull, FrameType::kReplicate})
    EXPECT_EQ(size.MostBytes(Header(type), 100'000'000, kSlots), wire::kMaxUnauthenticatedBodyBytes);
}

// The same through the core: a table of 200 KB at one shard thread.
class AnswerSizeOfCore : public ::testing::Test {
 protected:
  void SetUp() override {
    table_ = c_.AddTable({.name = "w", .size = kElements});
    c_.StartAll();
  }
  uint64_t Most(FrameType type, uint64_t request) {
    return c_.core->MostBodyBytes(c_.conn_of.at({0, 0}), Header(type, request));
  }
  // Its frame's id.
  uint64_t Pull(int64_t timeout_us) {
    PartitionInput input{.state = &c_.state, .table = &table_};
    input.out = {std::as_writable_bytes(std::span(out_))};
    Request request = PreparePull(input, c_.pool).value();
    request.deadline_us = c_.now + timeout_us;
    request.done = [this](Status status) { ended_ = std::move(status); };
    c_.core->Submit(std::move(request), c_.now);
    return c_.network.conns.at(c_.conn_of.at({0, 0})).sent.back().header.request_id;
  }

  static constexpr size_t kElements = 50'000;  // few enough for one frame
  FakeCluster c_{1, 1, kSlots};
  wire::TableInfo table_;
  std::vector<float> out_ = std::vector<float>(kElements);
  std::optional<Status> ended_;
};

TEST_F(AnswerSizeOfCore, APullBoundsItsAnswerAndNoOther) {
  const uint64_t id = Pull(1'000'000);
  EXPECT_GE(Most(FrameType::kPullReply, id), 4 * kElements);
  EXPECT_LE(Most(FrameType::kPullReply, id), 4 * kElements + kAround);
  EXPECT_EQ(Most(FrameType::kPullReply, id + 1), wire::kMaxUnauthenticatedBodyBytes);
  EXPECT_LE(Most(FrameType::kPushReply, id), kAround);
}

TEST_F(AnswerSizeOfCore, AnAnswerAfterTheDeadlineIsNotTooLarge) {
  const uint64_t id = Pull(1'000'000);
  c_.Tick(1'500'000);
  ASSERT_TRUE(ended_ && !ended_->ok());
  EXPECT_GE(Most(FrameType::kPullReply, id), 4 * kElements);
  c_.core->OnDisconnect(c_.conn_of.at({0, 0}), c_.now);
  c_.Tick(2'000'000);
  EXPECT_EQ(Most(FrameType::kPullReply, id), wire::kMaxUnauthenticatedBodyBytes) << "another connection";
}

TEST_F(AnswerSizeOfCore, ACodedAnswerUnfoldsNoFurtherThanWhatWasAskedFor) {
  const uint64_t id = Pull(1'000'000);
  const transport::MostBody most = [&](ConnId conn, const wire::FrameHeader& header) {
    return c_.core->MostBodyBytes(conn, header);
  };
  for (const size_t elements : {kElements, 2 * kElements}) {
    wire::DataParts parts;
    parts.type = FrameType::kPullReply;
    parts.request_id = id;
    parts.owned = c_.pool.Get(4 * elements);
    std::memset(parts.owned.data(), 0, parts.owned.size());
    parts.values = {parts.owned.bytes()};
    parts.coding = wire::Coding::kNonZero;
    const wire::FramePtr coded = wire::CodeFrame(*wire::EncodeData(std::move(parts), c_.pool), c_.pool);
    ASSERT_NE(coded, nullptr);
    const Buffer flat = wire::Flatten(*coded, c_.pool);
    transport::FrameReader reader(c_.pool, wire::kMaxBodyBytes,
                                  {.most_body = &most, .conn = c_.conn_of.at({0, 0})});
    ASSERT_LE(flat.size(), reader.Space()[0].size());
    std::memcpy(reader.Space()[0].data(), flat.data(), flat.size());
    reader.Filled(flat.size());
    wire::InFrame frame;
    const Result<bool> read = reader.Next(&frame);
    EXPECT_EQ(read.ok(), elements == kElements) << read.status().message();
  }
}

TEST_F(AnswerSizeOfCore, TheSchedulerSendsControlMessagesAlone) {
  const ConnId unknown{0};
  EXPECT_EQ(c_.core->MostBodyBytes(unknown, Header(FrameType::kControl)), wire::kMaxControlBytes);
  EXPECT_EQ(c_.core->MostBodyBytes(unknown, Header(FrameType::kPullReply)),
            wire::kMaxUnauthenticatedBodyBytes);
}

}  // namespace
}  // namespace cairn::client
