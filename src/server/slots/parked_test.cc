// Requests that wait: copies take their place, other requests don't, and whatever ends gives its room back.
#include "server/slots/parked.h"

#include <gtest/gtest.h>

#include <functional>

namespace cairn::server {
namespace {

constexpr Incarnation kClient{7}, kOther{8};
constexpr uint64_t kMost = ParkedRequests::kMaxBytesPerClient;

struct Waiting : ::testing::Test {
  wire::FrameHeader Header(uint64_t id, Incarnation client = kClient, uint32_t table = 1) {
    wire::FrameHeader header;
    header.type = wire::FrameType::kPull;
    header.incarnation = client.value;
    header.request_id = id;
    header.table = table;
    header.round = 1;
    header.entry_count = 1;
    header.key_count = 1;
    return header;
  }
  ParkedRequest& Park(const wire::FrameHeader& header, size_t bytes = 100) {
    ParkedRequest request;
    request.conn = ConnId{1};
    request.header = header;
    request.storage = pool.Get(bytes);
    return parked.Add(std::move(request));
  }
  BufferPool pool;
  ParkedRequests parked;
};

TEST_F(Waiting, ANumberThatIsUsedAgainForSomethingElseIsAnotherRequest) {
  const std::function<void(wire::FrameHeader&)> changes[] = {[](auto& h) { h.type = wire::FrameType::kDone; },
                                                             [](auto& h) { h.flags = wire::kFlagSyncPull; },
                                                             [](auto& h) { h.table = 2; },
                                                             [](auto& h) { h.round = 2; },
                                                             [](auto& h) { h.entry_count = 2; },
                                                             [](auto& h) { h.key_count = 2; }};
  for (const auto& change : changes) {
    const ParkedId id = Park(Header(1)).id;
    wire::FrameHeader other = Header(1);
    change(other);
    EXPECT_EQ(parked.Adopt(other, ConnId{2}), nullptr);
    EXPECT_EQ(parked.Find(id), nullptr) << "nobody waits for the first any more";
    EXPECT_TRUE(parked.HasRoom(kClient, kMost));
  }
  ParkedRequest& waits = Park(Header(1));
  EXPECT_EQ(parked.Adopt(Header(1), ConnId{2}), &waits);
  EXPECT_EQ(waits.conn, ConnId{2});
  EXPECT_EQ(parked.Adopt(Header(1, kOther), ConnId{2}), nullptr) << "of another client";
}

TEST_F(Waiting, WhateverEndsGivesItsRoomBack) {
  const std::function<void(ParkedId)> ends[] = {
      [&](ParkedId id) { parked.Remove(id); }, [&](ParkedId) { parked.ForgetClient(kClient); },
      [&](ParkedId) { parked.TakeAll(); }, [&](ParkedId) { parked.TakeTable(TableId{1}); }};
  for (const auto& end : ends) {
    const ParkedId id = Park(Header(1)).id;
    EXPECT_FALSE(parked.HasRoom(kClient, kMost));
    EXPECT_TRUE(parked.HasRoom(kOther, kMost)) << "each has room of its own";
    end(id);
    EXPECT_TRUE(parked.HasRoom(kClient, kMost));
    EXPECT_EQ(parked.Adopt(Header(1), ConnId{1}), nullptr);
  }
  // One of two: the other's bytes alone count.
  const ParkedId large = Park(Header(1), 100'000).id;
  const size_t left = Park(Header(2)).storage.capacity();
  parked.Remove(large);
  EXPECT_TRUE(parked.HasRoom(kClient, kMost - left));
  EXPECT_FALSE(parked.HasRoom(kClient, kMost - left + 1));
}

TEST_F(Waiting, AllOfOneClientAndOfOneTableAreTaken) {
  Park(Header(1));
  Park(Header(2, kClient, 2));
  Park(Header(3));
  Park(Header(1, kOther));
  EXPECT_EQ(parked.TakeTable(TableId{2}).size(), 1u);
  parked.ForgetClient(kClient);
  ASSERT_EQ(parked.all().size(), 1u);
  EXPECT_EQ(parked.all().begin()->second.header.incarnation, kOther.value);
}

TEST_F(Waiting, TheirNumberIsBounded) {
  for (uint64_t id = 1; id < ParkedRequests::kMaxPerClient; ++id) Park(Header(id), 0);
  EXPECT_TRUE(parked.HasRoom(kClient, 0));
  Park(Header(ParkedRequests::kMaxPerClient), 0);
  EXPECT_FALSE(parked.HasRoom(kClient, 0));
}

}  // namespace
}  // namespace cairn::server
