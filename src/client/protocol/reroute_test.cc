// Slots move while requests are under way: unanswered frames follow them, cut where they have to
// be, in the order of their numbers (docs/internals/consistency.md, rule 48).
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "client/protocol/fake_cluster.h"
#include "wire/state_delta.h"

namespace cairn::client {
namespace {

// Three servers with one thread, six slots: 0 1 on server 0, 2 3 on 1, 4 5 on 2.
class RerouteTest : public ::testing::Test {
 protected:
  RerouteTest()
      : c(3, 1, 6),
        table(c.AddTable(
            {.name = "emb", .kind = TableKind::kSparse, .element = ElementType::kInt64, .dim = 1})) {}

  static constexpr uint32_t kSlots = 6;
  // The n-th key of a slot.
  static RowKey KeyIn(uint32_t slot, uint32_t n = 0) {
    for (RowKey key = 0;; ++key) {
      if (wire::SlotOfKey(key, kSlots).value == slot && n-- == 0) return key;
    }
  }
  Request Prepare(const std::vector<uint32_t>& slots, const wire::ClusterState& state) {
    std::vector<RowKey> keys;
    std::vector<int64_t> values;
    for (uint32_t slot : slots) {
      keys.push_back(KeyIn(slot));
      values.push_back(100 + slot);
    }
    PartitionInput input{
        .state = &state, .table = &table, .keys = keys, .values = std::as_bytes(std::span(values))};
    return PreparePush(input, c.pool).value();
  }
  size_t Submit(Request request, int64_t timeout_us = 600'000'000) {
    request.deadline_us = c.now + timeout_us;
    const size_t at = ends.size();
    ends.emplace_back();
    request.done = [this, at](Status s) {
      EXPECT_FALSE(ends[at]);
      ends[at] = s;
    };
    c.core->Submit(std::move(request), c.now);
    c.Run();
    return at;
  }
  size_t Push(const std::vector<uint32_t>& slots) { return Submit(Prepare(slots, *c.core->state())); }
  // (slot, number) of every push that has arrived at a server, in order.
  std::vector<std::pair<uint32_t, uint64_t>> At(uint32_t server) {
    std::vector<std::pair<uint32_t, uint64_t>> all;
    for (wire::InFrame& frame : c.Inbox({server, 0})) {
      const wire::PushView push = wire::DecodePush(frame.header, frame.body()).value();
      size_t row = 0;
      for (const wire::SlotEntry& entry : push.entries) {
        all.push_back({entry.slot, entry.number});
        EXPECT_GE(frame.header.state_version, c.state.slots[entry.slot].since.value);
        EXPECT_EQ(entry.count, 1u);
        EXPECT_EQ(push.keys[row], KeyIn(entry.slot));
        int64_t value = 0;
        std::memcpy(&value, push.values.data() + row * sizeof(value), sizeof(value));
        EXPECT_EQ(value, 100 + entry.slot);
        ++row;
      }
    }
    return all;
  }
  void AckAll() {
    for (const wire::ServerInfo& server : std::vector(c.state.servers)) {
      const Link link{server.index, 0};
      while (!c.Inbox(link).empty()) c.AckPush(link, c.Take(link).header);
    }
  }
  void ClearAll() {
    for (auto& [link, box] : c.inbox) box.clear();
  }

  using Numbers = std::vector<std::pair<uint32_t, uint64_t>>;
  FakeCluster c;
  wire::TableInfo table;
  std::vector<std::optional<Status>> ends;
};

TEST_F(RerouteTest, AFrameIsCutWhenItsSlotsGetSeveralOwners) {
  c.StartAll();
  Push({2, 3});
  Push({3, 4});
  EXPECT_EQ(At(1), (Numbers{{2, 1}, {3, 1}, {3, 2}}));
  ClearAll();
  c.Move(2, {0, 0});
  c.Move(3, {2, 0});
  c.NewState();
  EXPECT_EQ(At(0), (Numbers{{2, 1}}));
  EXPECT_EQ(At(1), (Numbers{}));
  EXPECT_EQ(At(2), (Numbers{{3, 1}, {3, 2}}));
  EXPECT_FALSE(ends[0]);
  c.AckPush({2, 0}, c.Take({2, 0}).header);
  EXPECT_FALSE(ends[0]);  // its other half is missing
  c.AckPush({0, 0}, c.Take({0, 0}).header);
  EXPECT_TRUE(ends[0] && ends[0]->ok());
  EXPECT_FALSE(ends[1]);
}

TEST_F(RerouteTest, ADeadServersFramesGoToThoseThatHaveItsSlots) {
  c.StartAll();
  for (int i = 0; i < 3; ++i) Push({0, 1, 2, 3, 4, 5});
  const ConnId dead = c.conn_of.at({1, 0});
  ClearAll();
  c.Kill(1);  // slot 2 to server 0, 3 to 2
  c.NewState();
  EXPECT_FALSE(c.network.conns.at(dead).open);
  EXPECT_EQ(At(0), (Numbers{{2, 1}, {2, 2}, {2, 3}}));
  EXPECT_EQ(At(2), (Numbers{{3, 1}, {3, 2}, {3, 3}}));
  EXPECT_EQ(c.log.back(), "server 1 is gone; its partitions are now on servers 0, 2");
  Push({2, 3});
  EXPECT_EQ(At(0).back(), (std::pair<uint32_t, uint64_t>{2, 4}));
  EXPECT_EQ(At(2).back(), (std::pair<uint32_t, uint64_t>{3, 4}));
  AckAll();
  EXPECT_TRUE(ends[3] && ends[3]->ok());
  EXPECT_FALSE(ends[0]);  // the frames that stayed were not sent again, and are not answered
}

// What is on a link already is not sent again, and what comes to it goes between.
TEST_F(RerouteTest, NumbersStayInOrderOverTwoMoves) {
  c.StartAll();
  Push({2});
  Push({4});
  Push({2});
  Push({4});
  c.Move(2, {2, 0});
  ClearAll();
  c.NewState();
  EXPECT_EQ(At(2), (Numbers{{2, 1}, {2, 2}}));
  Push({2, 4});
  c.Move(2, {0, 0});
  c.Move(4, {0, 0});
  ClearAll();
  c.NewState();
  EXPECT_EQ(At(0), (Numbers{{2, 1}, {4, 1}, {2, 2}, {4, 2}, {2, 3}, {4, 3}}));
  // A new connection sends the same again, in the same order.
  ClearAll();
  c.Break({0, 0});
  c.Wait(200'000);
  EXPECT_EQ(At(0), (Numbers{{2, 1}, {4, 1}, {2, 2}, {4, 2}, {2, 3}, {4, 3}}));
  AckAll();
  for (auto& end : ends) EXPECT_TRUE(end && end->ok());
  EXPECT_EQ(c.acknowledged, (Numbers{{2, 1}, {4, 1}, {2, 2}, {4, 2}, {2, 3}, {4, 3}}));
}

// There and back again between two states that the client has seen: the owner is the same, but it
// refuses frames that were made before.
TEST_F(RerouteTest, AFrameThatStaysIsStampedAnewWhenItsSlotsHaveANewerEpoch) {
  c.StartAll();
  Push({2, 3});
  Push({3});
  const uint64_t old = c.Inbox({1, 0})[0].header.request_id;
  const uint64_t version = c.Inbox({1, 0})[0].header.state_version;
  ClearAll();
  const uint64_t rewinds = c.core->rewinds();
  c.Move(2, {1, 0});
  c.NewState();
  ASSERT_EQ(At(1), (Numbers{{2, 1}, {3, 1}}));  // the other one is as good as it was
  EXPECT_EQ(c.Inbox({1, 0})[0].header.request_id, old);
  EXPECT_GT(c.Inbox({1, 0})[0].header.state_version, version);
  EXPECT_GT(c.core->rewinds(), rewinds);  // a pull behind a push may have overtaken it
}

TEST_F(RerouteTest, FramesInTheTransportAreNotChangedWhenTheyAreStampedAnew) {
  c.StartAll();
  c.network.hold_frames = true;
  Push({2});
  ASSERT_EQ(c.network.held.size(), 1u);
  const uint64_t version = c.network.held[0]->header().state_version;
  c.Move(2, {1, 0});
  c.NewState();
  EXPECT_EQ(c.network.held[0]->header().state_version, version);
  Buffer flat = wire::Flatten(*c.network.held[0], c.pool);
  EXPECT_TRUE(wire::Parse(flat.bytes(), wire::kMaxBodyBytes, c.pool).ok());
}

TEST_F(RerouteTest, AnswersOfAnOldOwnerDoNotCount) {
  c.StartAll();
  Push({2, 3});
  const wire::FrameHeader old = c.Take({1, 0}).header;
  c.Move(2, {0, 0});
  c.NewState();
  const wire::FrameHeader rest = c.Take({1, 0}).header;
  EXPECT_NE(rest.request_id, old.request_id);
  c.AckPush({1, 0}, old);
  c.Gap({1, 0}, old, 2, 1);
  c.Error({1, 0}, old, Code::kUnavailable, "I am not its owner");
  EXPECT_TRUE(c.acknowledged.empty());
  c.AckPush({1, 0}, rest);
  EXPECT_FALSE(ends[0]);
  c.AckPush({0, 0}, c.Take({0, 0}).header);
  EXPECT_TRUE(ends[0] && ends[0]->ok());
}

TEST_F(RerouteTest, ALinkInBackOffGetsAndGivesFrames) {
  c.StartAll();
  Push({2});
  Push({3});
  Push({4});
  // Both wait before they try again.
  c.Error({1, 0}, c.Take({1, 0}).header, Code::kUnavailable, "handing over");
  c.Error({2, 0}, c.Take({2, 0}).header, Code::kUnavailable, "handing over");
  ClearAll();
  c.Move(2, {2, 0});
  c.NewState();
  EXPECT_TRUE(At(1).empty());
  EXPECT_TRUE(At(2).empty());
  c.Wait(200'000, 10'000);
  EXPECT_EQ(At(1), (Numbers{{3, 1}}));
  EXPECT_EQ(At(2), (Numbers{{2, 1}, {4, 1}}));
  AckAll();
  for (auto& end : ends) EXPECT_TRUE(end && end->ok());
}

TEST_F(RerouteTest, ALinkThatIsNotConnectedGetsAndGivesFrames) {
  c.StartAll();
  Push({2});
  Push({4});
  c.connects = false;
  c.Break({1, 0});
  c.Break({2, 0});
  ClearAll();
  Push({2});
  c.Move(2, {2, 0});
  c.NewState();
  EXPECT_TRUE(At(2).empty());
  c.connects = true;
  c.Wait(500'000);
  EXPECT_EQ(At(2), (Numbers{{2, 1}, {4, 1}, {2, 2}}));
}

TEST_F(RerouteTest, MovedFramesKeepTheBoundOfFramesUnderWay) {
  c.options.max_unacked_frames = 3;
  c.StartAll();
  for (int i = 0; i < 5; ++i) Push({2});
  for (int i = 0; i < 5; ++i) Push({4});
  c.Move(2, {2, 0});
  ClearAll();
  c.NewState();
  EXPECT_EQ(At(2), (Numbers{{2, 1}, {2, 2}, {2, 3}}));
  for (int i = 0; i < 10; ++i) {
    ASSERT_FALSE(c.Inbox({2, 0}).empty());
    c.AckPush({2, 0}, c.Take({2, 0}).header);
  }
  EXPECT_EQ(c.acknowledged,
            (Numbers{{2, 1}, {2, 2}, {2, 3}, {2, 4}, {2, 5}, {4, 1}, {4, 2}, {4, 3}, {4, 4}, {4, 5}}));
}

// A pull that is to be asked again soon does not take moved pushes with it, whose turn comes later.
TEST_F(RerouteTest, MovedFramesKeepTheBoundWhileTheLinkWaits) {
  c.options.max_unacked_frames = 3;
  c.StartAll();
  for (int i = 0; i < 3; ++i) Push({2});
  const RowKey key = KeyIn(4);
  int64_t out = 0;
  PartitionInput input{.state = c.core->state().get(),
                       .table = &table,
                       .keys = {&key, 1},
                       .out = std::as_writable_bytes(std::span(&out, 1))};
  Submit(PreparePull(input, c.pool).value());
  Push({4});
  c.Error({2, 0}, c.Take({2, 0}).header, Code::kUnavailable, "later");  // the pull: after a short back-off
  c.Error({2, 0}, c.Take({2, 0}).header, Code::kUnavailable, "later");  // the push: after twice as long
  c.Move(2, {2, 0});
  ClearAll();
  c.NewState();
  c.Wait(1'000'000, 10'000);
  EXPECT_EQ(c.Inbox({2, 0}).size(), 3u);
}

// A caller's thread cuts its request by the state that it has; a newer one may come before it is
// sent: on its way, or while it is held back.
TEST_F(RerouteTest, ARequestMadeUnderAnOlderMapIsCutWhenItIsSent) {
  c.options.max_unacked_bytes = 40;
  c.StartAll();
  const auto old = c.core->state();
  Request early = Prepare({0, 1, 2, 3}, *old);
  Push({0, 1});
  Submit(Prepare({2, 3}, *old));  // behind the bound
  EXPECT_EQ(At(1), (Numbers{}));
  c.Kill(1);
  c.Join(1);
  c.Move(0, {1, 0});
  ClearAll();
  c.NewState();
  Submit(std::move(early));
  EXPECT_EQ(At(1), (Numbers{{0, 1}}));
  for (int i = 0; i < 4; ++i) AckAll();
  for (auto& end : ends) EXPECT_TRUE(end && end->ok());
  std::map<uint32_t, uint64_t> last;
  for (auto [slot, number] : c.acknowledged) EXPECT_EQ(number, ++last[slot]) << slot;
  EXPECT_EQ(last, (std::map<uint32_t, uint64_t>{{0, 2}, {1, 2}, {2, 2}, {3, 2}}));
}

TEST_F(RerouteTest, AnIndexIsGivenToAnotherServer) {
  c.StartAll();
  Push({2, 3});
  const ConnId old = c.conn_of.at({1, 0});
  ClearAll();
  std::erase_if(c.state.servers, [](const auto& server) { return server.index == 1; });
  c.Join(1);
  for (uint32_t slot : {2, 3}) c.Move(slot, {1, 0});
  c.NewState();
  EXPECT_FALSE(c.network.conns.at(old).open);
  EXPECT_NE(c.conn_of.at({1, 0}), old);
  EXPECT_EQ(At(1), (Numbers{{2, 1}, {3, 1}}));
  EXPECT_EQ(c.log.back(), "server 1 is gone; its partitions are now on server 1");
  AckAll();
  EXPECT_TRUE(ends[0] && ends[0]->ok());
}

TEST_F(RerouteTest, AStartMayFindHolesAmongTheIndexes) {
  c.Kill(0);
  c.Kill(1);
  c.Join(4);
  for (uint32_t slot = 0; slot < 3; ++slot) c.Move(slot, {4, 0});
  c.state.version = c.state.version.Next();
  c.StartAll();
  Push({0, 1, 2, 3, 4, 5});
  EXPECT_EQ(At(4), (Numbers{{0, 1}, {1, 1}, {2, 1}}));
  EXPECT_EQ(At(2), (Numbers{{3, 1}, {4, 1}, {5, 1}}));
  AckAll();
  EXPECT_TRUE(ends[0] && ends[0]->ok());
}

TEST_F(RerouteTest, WhatWasObeyedOnAConnectionIsForgottenWhenTheSlotComesBack) {
  c.StartAll();
  Push({2});
  Push({2});
  c.Gap({1, 0}, c.Inbox({1, 0})[1].header, 2, 1);
  const uint64_t rewinds = c.core->rewinds();
  c.Move(2, {1, 0});  // away and back
  ClearAll();
  c.NewState();
  EXPECT_EQ(At(1), (Numbers{{2, 1}, {2, 2}}));
  const wire::FrameHeader second = c.Inbox({1, 0})[1].header;
  ClearAll();
  c.Gap({1, 0}, second, 2, 1);
  EXPECT_EQ(At(1), (Numbers{{2, 1}, {2, 2}}));
  EXPECT_GT(c.core->rewinds(), rewinds + 1);
}

TEST_F(RerouteTest, ANewOwnerThatLacksAcknowledgedPushesIsNamedOnTheFourthConnection) {
  c.StartAll();
  Push({2});
  Push({2});
  Push({2});
  for (int i = 0; i < 2; ++i) c.AckPush({1, 0}, c.Take({1, 0}).header);
  // Doubts about the old owner say nothing about the new one.
  c.Gap({1, 0}, c.Take({1, 0}).header, 2, 1);
  c.Wait(1'000'000);
  c.Kill(1);
  c.NewState();
  ASSERT_EQ(c.LinkOfSlot(2), Link(0, 0));
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(c.core->fatal().ok()) << i;
    ASSERT_FALSE(c.Inbox({0, 0}).empty());
    c.Gap({0, 0}, c.Take({0, 0}).header, 2, 1);
    c.Wait(2'000'000);
  }
  EXPECT_EQ(c.core->fatal().code(), Code::kJobFailed);
  EXPECT_EQ(c.core->fatal().message(),
            "server 0 thread 0 at 10.0.0.0:7000 asks for push 1 of partition 2 again, after it had "
            "acknowledged all up to 2: it has lost acknowledged pushes");
}

// A shard that knows more makes the client ask, at most every 50 ms.
TEST_F(RerouteTest, AnAnswerOfANewerStateMakesTheClientAsk) {
  c.StartAll();
  Push({2});
  const wire::FrameHeader push = c.Inbox({1, 0})[0].header;
  c.Move(2, {0, 0});
  c.state.version = c.state.version.Next();  // and nobody has told this client
  c.answers_under = c.state.version;
  c.scheduler_answers = false;
  c.heard.clear();
  for (int i = 0; i < 5; ++i) {
    c.Error({1, 0}, push, Code::kUnavailable, "not mine any more");
    c.Tick(1'000);
  }
  const auto heartbeats = [&] {
    return std::count_if(c.heard.begin(), c.heard.end(), [](const auto& message) {
      return std::holds_alternative<wire::Heartbeat>(message);
    });
  };
  EXPECT_EQ(heartbeats(), 1);
  c.Tick(50'000);
  EXPECT_EQ(heartbeats(), 2);
  c.scheduler_answers = true;
  ClearAll();
  c.Tick(50'000);
  EXPECT_EQ(c.core->state()->version, c.state.version);
  EXPECT_EQ(At(0), (Numbers{{2, 1}}));
  c.heard.clear();
  c.Tick(50'000);
  c.Tick(50'000);
  EXPECT_EQ(heartbeats(), 0);  // it has what it wanted
}

TEST_F(RerouteTest, ACallThatEndsNamesTheMissingOwnerAndTheSilentScheduler) {
  c.StartAll();
  c.connects = false;
  c.Break({1, 0});
  const size_t call = Submit(Prepare({2}, *c.core->state()), 8'000'000);
  c.Wait(2'000'000);
  c.scheduler_answers = false;
  c.Wait(7'000'000);
  ASSERT_TRUE(ends[call]);
  const std::string text = ends[call]->message();
  EXPECT_NE(text.find("no answer from server 1 thread 0 at 10.0.0.1:7000 (not connected); no answer "
                      "from the scheduler at 127.0.0.1:8118 for "),
            std::string::npos)
      << text;
}

TEST_F(RerouteTest, SlotsThatAreHandedOverAreLoggedTogether) {
  c.StartAll();
  c.Move(0, {1, 0});
  c.NewState();
  ASSERT_EQ(c.log.size(), 1u);
  EXPECT_EQ(c.log[0], "1 partition has moved to server 1");
  c.Move(1, {1, 0});
  c.NewState();
  c.Move(3, {2, 0});
  c.NewState();
  EXPECT_EQ(c.log.size(), 1u);
  c.Wait(11'000'000);
  ASSERT_EQ(c.log.size(), 2u);
  EXPECT_EQ(c.log[1], "2 partitions have moved to servers 1, 2");
  c.Move(1, {0, 0});
  c.NewState();
  c.Wait(11'000'000);
  ASSERT_EQ(c.log.size(), 3u);
  EXPECT_EQ(c.log[2], "1 partition has moved to server 0");
}

// What else a state says does not touch what is under way.
TEST_F(RerouteTest, AStateWithTheSameMapMovesNothing) {
  c.StartAll();
  Push({2, 3});
  ClearAll();
  for (uint32_t slot : {2, 3}) c.state.slots[slot].backups = {{0, 0, true, c.state.version}};
  c.state.slots[2].heir = 0;
  c.NewState();
  ASSERT_EQ(c.core->state()->version, c.state.version);
  c.Wait(1'000'000);
  for (uint32_t server = 0; server < 3; ++server) EXPECT_TRUE(At(server).empty());
  EXPECT_EQ(c.core->rewinds(), 0u);
}

TEST_F(RerouteTest, AChangeOfTheStateIsEnoughWhereItFits) {
  c.StartAll();
  Push({2});
  ClearAll();
  const wire::ClusterState first = c.state;
  c.Move(2, {0, 0});
  c.state.version = c.state.version.Next();
  const wire::ClusterState second = c.state;
  c.Say(c.SchedulerConn(), wire::Difference(first, second));
  c.Run();
  EXPECT_EQ(*c.core->state(), second);
  EXPECT_EQ(At(0), (Numbers{{2, 1}}));
  // One is lost: the next is of no use, but a heartbeat brings the whole state.
  c.Move(2, {2, 0});
  c.state.version = c.state.version.Next();
  const wire::ClusterState third = c.state;
  c.state.version = c.state.version.Next();
  c.Say(c.SchedulerConn(), wire::Difference(third, c.state));
  EXPECT_EQ(*c.core->state(), second);
  c.Wait(1'100'000);
  EXPECT_EQ(*c.core->state(), c.state);
  EXPECT_EQ(At(2), (Numbers{{2, 1}}));
}

}  // namespace
}  // namespace cairn::client
