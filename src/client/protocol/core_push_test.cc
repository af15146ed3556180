// Numbered pushes: order, resending, bounds, deadlines.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "client/protocol/fake_cluster.h"

namespace cairn::client {
namespace {

// One server with one thread, so that everything goes over one link; a sparse table of one int64.
class PushTest : public ::testing::Test {
 protected:
  PushTest()
      : c(1, 1, 4),
        table(c.AddTable(
            {.name = "emb", .kind = TableKind::kSparse, .element = ElementType::kInt64, .dim = 1})) {}
  Request Prepare(RowKey key, int64_t value = 1, size_t rows = 1) {
    std::vector<RowKey> keys(rows);
    for (size_t i = 0; i < rows; ++i) keys[i] = key + i * 1000;
    const std::vector<int64_t> values(rows, value);
    PartitionInput input{.state = c.core->state().get(),
                         .table = &table,
                         .keys = keys,
                         .values = std::as_bytes(std::span(values))};
    Request request = PreparePush(input, c.pool).value();
    request.deadline_us = c.now + 600'000'000;
    return request;
  }
  void Push(RowKey key, int64_t timeout_us = 600'000'000) {
    Request request = Prepare(key);
    request.deadline_us = c.now + timeout_us;
    const size_t at = ends.size();
    ends.emplace_back();
    request.done = [this, at](Status s) {
      EXPECT_FALSE(ends[at]);
      ends[at] = s;
    };
    c.core->Submit(std::move(request), c.now);
    c.Run();
  }
  std::vector<std::pair<uint32_t, uint64_t>> Numbers() {
    std::vector<std::pair<uint32_t, uint64_t>> all;
    for (wire::InFrame& frame : c.Inbox(kLink)) {
      const wire::PushView push = wire::DecodePush(frame.header, frame.body()).value();
      for (const wire::SlotEntry& e : push.entries) {
        all.push_back({e.slot, e.number});
      }
    }
    return all;
  }
  std::vector<uint64_t> Ids() {
    std::vector<uint64_t> ids;
    for (wire::InFrame& frame : c.Inbox(kLink)) ids.push_back(frame.header.request_id);
    return ids;
  }
  uint32_t Slot(RowKey key) const { return wire::SlotOfKey(key, 4).value; }

  static constexpr Link kLink{0, 0};
  FakeCluster c;
  wire::TableInfo table;
  std::vector<std::optional<Status>> ends;
};

TEST_F(PushTest, AreNumberedPerSlotInTheOrderOfSubmitAcrossTables) {
  const wire::TableInfo other =
      c.AddTable({.name = "two", .kind = TableKind::kSparse, .element = ElementType::kInt64, .dim = 1});
  c.StartAll();
  std::map<uint32_t, uint64_t> next;
  std::vector<std::pair<uint32_t, uint64_t>> expected;
  for (RowKey key = 0; key < 40; ++key) {
    if (key == 20) table = other;
    Push(key);
    expected.push_back({Slot(key), ++next[Slot(key)]});
  }
  EXPECT_EQ(Numbers(), expected);
  std::vector<uint64_t> ids = Ids();
  EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
  while (!c.Inbox(kLink).empty()) c.AckPush(kLink, c.Take(kLink).header);
  for (auto& end : ends) EXPECT_TRUE(end && end->ok());
  EXPECT_EQ(c.acknowledged, expected);
  EXPECT_EQ(c.core->frames_sent(), 40u);
  EXPECT_EQ(c.core->rewinds(), 0u);
}

TEST_F(PushTest, AreSentAgainInOrderOnANewConnection) {
  c.StartAll();
  for (RowKey key = 0; key < 6; ++key) Push(key);
  const auto numbers = Numbers();
  const auto ids = Ids();
  c.AckPush(kLink, c.Inbox(kLink)[1].header);  // answered out of order
  const ConnId old = c.conn_of.at(kLink);
  const wire::FrameHeader first = c.Inbox(kLink)[0].header;
  c.Inbox(kLink).clear();
  c.Break(kLink);
  Push(6);  // while there is no connection
  EXPECT_TRUE(c.Inbox(kLink).empty());
  c.Wait(200'000);
  EXPECT_NE(c.conn_of.at(kLink), old);
  const uint64_t next = ids[5] + (ids[5] - ids[4]);
  std::vector<uint64_t> expected = {ids[0], ids[2], ids[3], ids[4], ids[5], next};
  EXPECT_EQ(Ids(), expected);
  EXPECT_EQ(Numbers()[1], numbers[2]);
  EXPECT_EQ(c.core->rewinds(), 1u);
  // What the old connection still says does not count.
  c.Deliver(old, wire::EncodePushReply(first, {}, "", c.pool));
  EXPECT_FALSE(ends[0]);
  c.AckPush(kLink, first);
  EXPECT_TRUE(ends[0]);
}

TEST_F(PushTest, AGapRewindsOncePerResumePoint) {
  c.StartAll();
  const RowKey key = 3;
  for (int i = 0; i < 5; ++i) Push(key);
  const auto ids = Ids();
  std::deque<wire::InFrame> sent = std::move(c.Inbox(kLink));
  c.Inbox(kLink).clear();
  // The first was lost: all others are answered with the same place to resume.
  for (size_t i = 1; i < 5; ++i) c.Gap(kLink, sent[i].header, Slot(key), 1);
  EXPECT_EQ(c.core->rewinds(), 1u);
  EXPECT_EQ(Ids(), ids);
  c.AckPush(kLink, sent[0].header);
  c.Gap(kLink, sent[2].header, Slot(key), 2);  // a later point is a new reason
  EXPECT_EQ(c.core->rewinds(), 2u);
  for (size_t i = 1; i < 5; ++i) c.AckPush(kLink, sent[i].header);
  for (auto& end : ends) EXPECT_TRUE(end && end->ok());
}

TEST_F(PushTest, DuplicateAndForeignAnswersAreIgnored) {
  c.StartAll();
  Push(1);
  Push(1);
  const wire::FrameHeader first = c.Inbox(kLink)[0].header;
  c.AckPush(kLink, first);
  c.AckPush(kLink, first);
  c.Gap(kLink, first, Slot(1), 1);
  wire::FrameHeader unknown = first;
  unknown.request_id = 999;
  c.AckPush(kLink, unknown);
  EXPECT_TRUE(ends[0] && ends[0]->ok());
  EXPECT_FALSE(ends[1]);
  EXPECT_EQ(c.acknowledged.size(), 1u);
  EXPECT_EQ(c.core->rewinds(), 0u);
}

TEST_F(PushTest, AResumePointBelowWhatWasAnsweredIsFatalOnTheFourthConnection) {
  c.StartAll();
  for (int i = 0; i < 3; ++i) Push(1);
  const wire::FrameHeader last = c.Inbox(kLink)[2].header;
  c.AckPush(kLink, c.Inbox(kLink)[0].header);
  c.AckPush(kLink, c.Inbox(kLink)[1].header);
  // It could be an old copy of an answer: the connection is made anew to know.
  for (int i = 0; i < 3; ++i) {
    c.Gap(kLink, last, Slot(1), 1);
    EXPECT_TRUE(c.core->fatal().ok());
    c.Wait(1'000'000);
  }
  c.Gap(kLink, last, Slot(1), 1);
  EXPECT_EQ(c.core->fatal().code(), Code::kJobFailed);
  EXPECT_NE(c.core->fatal().message().find("lost acknowledged pushes"), std::string::npos);
  EXPECT_EQ(ends[2]->code(), Code::kOutcomeUnknown);
}

TEST_F(PushTest, ARefusalIsAnOutcomeAndTheOtherSlotsPartsAreApplied) {
  c.StartAll();
  Request request = Prepare(0, 1, 40);  // touches every slot
  ASSERT_EQ(request.parts.size(), 1u);
  request.done = [&](Status s) { ends.push_back(s); };
  c.core->Submit(std::move(request), c.now);
  c.Run();
  const wire::InFrame frame = c.Take(kLink);
  const wire::SlotEntry problem{2, static_cast<uint32_t>(Code::kNotFound), 1};
  c.Answer(kLink, wire::EncodePushReply(frame.header, {&problem, 1}, "table 1 was dropped", c.pool));
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(*ends[0], Status(Code::kNotFound, "table 1 was dropped"));
  EXPECT_EQ(c.acknowledged.size(), 3u);
  for (auto& [slot, seq] : c.acknowledged) EXPECT_NE(slot, 2u);
}

TEST_F(PushTest, UnavailableRewindsAfterABackOff) {
  c.StartAll();
  for (int i = 0; i < 3; ++i) Push(1);
  std::deque<wire::InFrame> sent = std::move(c.Inbox(kLink));
  c.Inbox(kLink).clear();
  for (auto& frame : sent) c.Error(kLink, frame.header, Code::kUnavailable, "my state is older");
  Push(1);
  EXPECT_TRUE(c.Inbox(kLink).empty());
  c.Wait(200'000, 10'000);
  EXPECT_EQ(Ids().size(), 4u);
  EXPECT_EQ(c.core->rewinds(), 1u);
}

TEST_F(PushTest, ASilentConnectionIsMadeAnew) {
  c.StartAll();
  Push(1);
  const ConnId old = c.conn_of.at(kLink);
  c.Wait(2'900'000);
  EXPECT_EQ(c.conn_of.at(kLink), old);
  c.Wait(400'000);
  EXPECT_NE(c.conn_of.at(kLink), old);
  EXPECT_EQ(Ids().size(), 2u);  // both copies
  c.AckPush(kLink, c.Take(kLink).header);
  EXPECT_TRUE(ends[0]->ok());
  const ConnId idle = c.conn_of.at(kLink);
  c.Wait(10'000'000);  // nothing is awaited: silence is fine
  EXPECT_EQ(c.conn_of.at(kLink), idle);
}

TEST_F(PushTest, AnswersToOthersDoNotHideALostOne) {
  c.StartAll();
  RowKey other = 2;
  while (Slot(other) == Slot(1)) ++other;
  Push(1);
  const uint64_t lost = c.Take(kLink).header.request_id;
  const ConnId old = c.conn_of.at(kLink);
  for (int i = 0; i < 5; ++i) {
    Push(other);
    c.AckPush(kLink, c.Take(kLink).header);
    c.Wait(500'000);
  }
  EXPECT_EQ(c.conn_of.at(kLink), old);
  c.Wait(1'000'000);
  EXPECT_NE(c.conn_of.at(kLink), old);
  ASSERT_FALSE(Ids().empty());
  EXPECT_EQ(Ids()[0], lost);
}

TEST_F(PushTest, BytesAreBoundedButALargePushGoesAlone) {
  c.options.max_unacked_bytes = 100;  // a push of one row is 16
  c.StartAll();
  EXPECT_TRUE(c.core->has_room());
  for (int i = 0; i < 7; ++i) Push(1);
  EXPECT_EQ(Ids().size(), 6u);
  EXPECT_FALSE(c.core->has_room());
  Request large = Prepare(5, 1, 50);
  EXPECT_GT(large.bytes, c.options.max_unacked_bytes);
  large.done = [&](Status s) { ends.push_back(s); };
  c.core->Submit(std::move(large), c.now);
  for (int i = 0; i < 6; ++i) c.AckPush(kLink, c.Take(kLink).header);
  EXPECT_EQ(Ids().size(), 1u);  // the seventh; the large one waits until it can be alone
  c.AckPush(kLink, c.Take(kLink).header);
  EXPECT_EQ(Ids().size(), 1u);
  Push(2);
  EXPECT_EQ(Ids().size(), 1u);
  c.AckPush(kLink, c.Take(kLink).header);
  EXPECT_EQ(Ids().size(), 1u);
  c.AckPush(kLink, c.Take(kLink).header);
  EXPECT_TRUE(c.core->has_room());
  for (auto& end : ends) EXPECT_TRUE(end && end->ok());
}

TEST_F(PushTest, FramesInFlightAreBoundedPerLink) {
  c.options.max_unacked_frames = 3;
  c.StartAll();
  for (int i = 0; i < 5; ++i) Push(1);
  EXPECT_EQ(Ids().size(), 3u);
  c.AckPush(kLink, c.Take(kLink).header);
  EXPECT_EQ(Ids().size(), 3u);
  EXPECT_EQ(Numbers().back().second, 4u);
}

TEST_F(PushTest, PastItsDeadlineASentPushIsUnknownAndGoesOn) {
  c.options.max_unacked_bytes = 20;
  c.StartAll();
  Push(1, 1'000'000);
  Push(1, 2'000'000);  // behind the bound: never numbered
  Push(1);
  c.Wait(2'500'000);
  ASSERT_TRUE(ends[0] && ends[1]);
  EXPECT_EQ(ends[0]->code(), Code::kOutcomeUnknown);
  EXPECT_NE(ends[0]->message().find("no answer from server 0 thread 0 at 10.0.0.0:7000"), std::string::npos);
  EXPECT_EQ(ends[1]->code(), Code::kDeadlineExceeded);
  EXPECT_FALSE(c.core->has_room());
  c.Break(kLink);
  c.Inbox(kLink).clear();
  c.Wait(200'000);
  ASSERT_EQ(Ids().size(), 1u);  // still sent: a gap would block the slot
  c.AckPush(kLink, c.Take(kLink).header);
  ASSERT_EQ(Ids().size(), 1u);
  EXPECT_EQ(Numbers()[0].second, 2u);  // the dropped one used up no number
  c.AckPush(kLink, c.Take(kLink).header);
  EXPECT_TRUE(ends[2]->ok());
}

// Healthy servers do not answer while a partition has too few owners: what the scheduler says of that comes
// first. In which words it says it does not matter.
TEST_F(PushTest, TooFewOwnersAreNamedBeforeTheServers) {
  c.StartAll();
  c.awaiting = "some words";
  auto end_of = [&](uint32_t blocked) {
    c.blocked_slots = blocked;
    c.Wait(2'000'000);
    const size_t push = ends.size();
    Push(1, 3'000'000);
    c.Wait(4'000'000);
    return ends.at(push) ? ends.at(push)->message() : std::string("none");
  };
  const std::string blocked = end_of(3), free = end_of(0);
  EXPECT_LT(blocked.find("some words"), blocked.find("no answer from server 0")) << blocked;
  EXPECT_LT(free.find("no answer from server 0"), free.find("some words")) << free;
}

TEST_F(PushTest, AShardThatSaysRetiredIsTheEnd) {
  c.StartAll();
  Push(1);
  c.Error(kLink, c.Take(kLink).header, Code::kRetired, "incarnation 7 was declared dead");
  EXPECT_EQ(c.core->fatal().code(), Code::kRetired);
  EXPECT_EQ(ends[0]->code(), Code::kOutcomeUnknown);
}

TEST_F(PushTest, AWaitIsLogged) {
  c.StartAll();
  Push(1);
  c.greets = false;
  c.Break(kLink);
  c.Wait(25'000'000);
  ASSERT_FALSE(c.log.empty());
  EXPECT_EQ(c.log[0],
            "rank 0 waits for a push to table \"emb\": no answer from server 0 thread 0 at 10.0.0.0:7000 "
            "(not connected)");
}

TEST_F(PushTest, DoneMaySubmitTheNext) {
  c.StartAll();
  int finished = 0;
  std::function<void(Status)> next = [&](Status s) {
    EXPECT_TRUE(s.ok());
    if (++finished == 3) return;
    Request request = Prepare(1);
    request.done = next;
    c.core->Submit(std::move(request), c.now);
  };
  Request request = Prepare(1);
  request.done = next;
  c.core->Submit(std::move(request), c.now);
  c.Run();
  while (!c.Inbox(kLink).empty()) c.AckPush(kLink, c.Take(kLink).header);
  EXPECT_EQ(finished, 3);
}

// A large frame on a slow network takes longer than an answer may: while its bytes move, those
// behind it are not taken for lost; when they stop, they are.
TEST_F(PushTest, FramesBehindALargeOneAreNotTakenForLost) {
  c.StartAll();
  Push(1);
  const size_t connections = c.network.conns.size();
  for (int second = 0; second < 30; ++second) {
    ++c.network.bulk_progress;
    c.Wait(1'000'000);
  }
  EXPECT_EQ(c.network.conns.size(), connections);
  c.Wait(5'000'000);
  EXPECT_GT(c.network.conns.size(), connections);
}

// A frame that the server takes for damaged is sent again on a fresh connection; only a peer that
// says so again and again can't be worked with.
TEST_F(PushTest, ADamagedFrameIsSentAgain) {
  c.StartAll();
  Push(1);
  const wire::FrameHeader first = c.Take(kLink).header;
  c.Error(kLink, first, Code::kProtocol, "wrong checksum");
  c.Wait(2'000'000);
  ASSERT_EQ(c.Inbox(kLink).size(), 1u);
  c.AckPush(kLink, c.Take(kLink).header);
  ASSERT_TRUE(ends[0]);
  EXPECT_TRUE(ends[0]->ok());
  Push(2);
  for (int i = 0; i < 4; ++i) {
    ASSERT_FALSE(ends[1]) << i << ": the one before, which an answer followed, does not count";
    ASSERT_FALSE(c.Inbox(kLink).empty()) << i;
    c.Error(kLink, c.Take(kLink).header, Code::kProtocol, "wrong checksum");
    c.Wait(5'000'000);
  }
  ASSERT_TRUE(ends[1]);
  EXPECT_EQ(ends[1]->code(), Code::kOutcomeUnknown);
  EXPECT_NE(ends[1]->message().find("wrong checksum"), std::string::npos) << ends[1]->message();
}

// A push and the pull behind it, of a dense table that takes several frames.
class InTurns : public ::testing::Test {
 protected:
  explicit InTurns(uint64_t max_unacked_bytes = ClientCoreOptions().max_unacked_bytes)
      : c(1, 1, 8), table(c.AddTable({.name = "w", .size = 8 * 64 * 1024})) {
    c.options.max_unacked_bytes = max_unacked_bytes;
    c.StartAll();
  }
  void PushPull(const std::function<void(Request& pull)>& change = {}) {
    const PartitionInput input{.state = c.core->state().get(),
                               .table = &table,
                               .values = std::as_bytes(std::span(gradient)),
                               .out = std::as_writable_bytes(std::span(out))};
    Request push = PreparePush(input, c.pool).value();
    Request pull = PreparePull(input, c.pool).value();
    if (change) change(pull);
    push.deadline_us = pull.deadline_us = c.now + 600'000'000;
    push.done = [this](Status status) { pushed = status; };
    pull.done = [this](Status status) { pulled = status; };
    c.core->SubmitInTurns(std::move(push), std::move(pull), c.now);
    c.Run();
  }
  std::vector<wire::FrameType> Types() {
    std::vector<wire::FrameType> types;
    for (wire::InFrame& frame : c.Inbox({0, 0})) types.push_back(frame.header.type);
    return types;
  }
  FakeCluster c;
  wire::TableInfo table;
  std::vector<float> gradient = std::vector<float>(8 * 64 * 1024, 1.0f);
  std::vector<float> out = std::vector<float>(8 * 64 * 1024);
  std::optional<Status> pushed, pulled;
};

TEST_F(InTurns, APartsPullIsRightBehindItsPush) {
  PushPull();
  const std::vector<wire::FrameType> types = Types();
  ASSERT_GE(types.size(), 4u);
  ASSERT_EQ(types.size() % 2, 0u);
  std::vector<wire::InFrame> frames;
  while (!c.Inbox({0, 0}).empty()) frames.push_back(c.Take({0, 0}));
  for (size_t i = 0; i < frames.size(); i += 2) {
    ASSERT_EQ(types[i], wire::FrameType::kPush);
    ASSERT_EQ(types[i + 1], wire::FrameType::kPull);
    const auto push = wire::DecodePush(frames[i].header, frames[i].body())->entries;
    const auto pull = wire::DecodePull(frames[i + 1].header, frames[i + 1].body())->entries;
    EXPECT_TRUE(std::equal(push.begin(), push.end(), pull.begin(), pull.end(),
                           [](const auto& a, const auto& b) { return a.slot == b.slot; }));
  }
  for (const wire::InFrame& frame : frames) {
    EXPECT_FALSE(pushed && pulled);
    if (frame.header.type == wire::FrameType::kPush) {
      c.AckPush({0, 0}, frame.header);
    } else {
      size_t elements = 0;
      const auto pull = wire::DecodePull(frame.header, frame.body());
      for (const auto& entry : pull->entries) elements += entry.count;
      const std::vector<float> threes(elements, 3.0f);
      const auto bytes = std::as_bytes(std::span(threes));
      c.AnswerValues({0, 0}, frame, {bytes.begin(), bytes.end()}, Position{7});
    }
  }
  EXPECT_TRUE(pushed && pushed->ok());
  EXPECT_TRUE(pulled && pulled->ok());
  EXPECT_EQ(out, std::vector<float>(out.size(), 3.0f));
}

// Where the parts are not the same a part's pull could overtake the push of some of its slots.
TEST_F(InTurns, OtherPartsGoOneAfterTheOther) {
  PushPull([](Request& pull) {
    ASSERT_GE(pull.parts.size(), 2u);
    std::swap(pull.parts.front(), pull.parts.back());
  });
  const std::vector<wire::FrameType> types = Types();
  EXPECT_TRUE(std::ranges::is_sorted(types)) << "all pushes, then all pulls";
}

// Larger than the bound, as one is that pushes all of a model.
struct InTurnsAtTheBound : InTurns {
  InTurnsAtTheBound() : InTurns(1000) {}
};
TEST_F(InTurnsAtTheBound, ALargePushWaitsUntilItIsAlone) {
  PushPull();
  std::vector<wire::InFrame> first;
  while (!c.Inbox({0, 0}).empty()) first.push_back(c.Take({0, 0}));
  ASSERT_GE(first.size(), 4u) << "with nothing else under way it goes";
  PushPull();
  EXPECT_TRUE(Types().empty()) << "the first one is not acknowledged";
  std::erase_if(first, [](const auto& frame) { return frame.header.type != wire::FrameType::kPush; });
  for (const wire::InFrame& frame : first) {
    EXPECT_TRUE(Types().empty()) << "a part of the first one is not acknowledged";
    c.AckPush({0, 0}, frame.header);
  }
  const std::vector<wire::FrameType> types = Types();
  EXPECT_EQ(std::ranges::count(types, wire::FrameType::kPush), static_cast<long>(first.size()));
}

// Its primary holds the answer back until a backup has it: nothing is lost, so nothing is sent again.
TEST_F(PushTest, AreNotSentAgainWhileTheServerSaysThatTheAnswerWaits) {
  c.StartAll();
  Push(1);
  Push(2);
  const wire::FrameHeader first = c.Inbox(kLink)[0].header;
  const ConnId conn = c.conn_of.at(kLink);
  const uint64_t sent = c.core->frames_sent();
  for (int second = 0; second < 15; ++second) {
    c.Wait(1'000'000);
    c.Say(conn, wire::StillWaiting{first.request_id, table.id, Round{0}, {}, "server 1 thread 0 to confirm"});
  }
  EXPECT_EQ(c.conn_of.at(kLink), conn);
  EXPECT_EQ(c.core->frames_sent(), sent);
  // Silence is silence again.
  c.Wait(4'000'000);
  EXPECT_NE(c.conn_of.at(kLink), conn);
  EXPECT_EQ(c.core->frames_sent(), sent + 2);
}

}  // namespace
}  // namespace cairn::client
