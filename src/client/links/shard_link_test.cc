// One connection to a shard thread: which answers count, when it is made anew, and what is said of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <variant>

#include "client/protocol/fake_cluster.h"

namespace cairn::client {
namespace {

class LinkTest : public ::testing::Test {
 protected:
  LinkTest()
      : c(1, 1, 4),
        rows(c.AddTable(
            {.name = "emb", .kind = TableKind::kSparse, .element = ElementType::kInt64, .dim = 1})),
        sync(c.AddTable({.name = "w", .mode = Mode::kSync, .size = 100})),
        values(100) {}
  size_t Submit(Result<Request> request, int64_t timeout_us = 600'000'000) {
    CAIRN_CHECK(request.ok());
    request->deadline_us = c.now + timeout_us;
    const size_t at = ends.size();
    ends.emplace_back();
    request->done = [this, at](Status s) { ends[at] = s; };
    c.core->Submit(std::move(*request), c.now);
    c.Run();
    return at;
  }
  size_t Push(RowKey key = 1, int64_t timeout_us = 600'000'000) {
    const std::vector<int64_t> one = {1};
    return Submit(PreparePush({.state = c.core->state().get(),
                               .table = &rows,
                               .keys = {&key, 1},
                               .values = std::as_bytes(std::span(one))},
                              c.pool),
                  timeout_us);
  }
  void StartRound() {
    Submit(PrepareRound(
        {.state = c.core->state().get(), .table = &sync, .values = std::as_bytes(std::span(values))},
        c.pool));
  }
  wire::FrameHeader Header(size_t at) { return c.Inbox(kLink).at(at).header; }
  ConnId Conn() const { return c.conn_of.at(kLink); }
  uint32_t Slot(RowKey key) const { return wire::SlotOfKey(key, 4).value; }
  RowKey Elsewhere() const {
    RowKey key = 2;
    while (Slot(key) == Slot(1)) ++key;
    return key;
  }
  std::string Text(size_t call) const { return ends.at(call) ? ends[call]->message() : "it has not ended"; }
  // Why the link is not ready, as a push that ends meanwhile has it.
  std::string Trouble() {
    const size_t push = Push(1, 1'000'000);
    c.Wait(1'200'000);
    return Text(push);
  }

  static constexpr Link kLink{0, 0};
  FakeCluster c;
  wire::TableInfo rows, sync;
  std::vector<float> values;
  std::vector<std::optional<Status>> ends;
};

TEST_F(LinkTest, AnswersToOthersOrToWhatWasNotSentDoNotCount) {
  c.options.max_unacked_frames = 1;
  c.StartAll();
  Push();
  Push();  // waits
  wire::FrameHeader other = Header(0);
  other.incarnation = 8;
  c.AckPush(kLink, other);
  wire::FrameHeader unsent = Header(0);
  unsent.request_id *= 2;  // that of the second one
  c.AckPush(kLink, unsent);
  EXPECT_FALSE(ends[0] || ends[1]);
  c.AckPush(kLink, Header(0));
  EXPECT_TRUE(ends[0]);
  ASSERT_EQ(c.Inbox(kLink).size(), 2u);
  EXPECT_EQ(Header(1).request_id, unsent.request_id);
}

TEST_F(LinkTest, AnAnswerOfAnotherKindDoesNotCount) {
  c.StartAll();
  const RowKey key = 1;
  int64_t out = -1;
  Submit(PreparePull({.state = c.core->state().get(),
                      .table = &rows,
                      .keys = {&key, 1},
                      .out = std::as_writable_bytes(std::span(&out, 1))},
                     c.pool));
  wire::InFrame pull = c.Take(kLink);
  pull.header.type = wire::FrameType::kContribute;  // answered as a round
  c.AnswerEntries(kLink, pull, {{Slot(key), 1, Position::Of(1, 1).packed}}, std::vector<std::byte>(8), 0);
  EXPECT_FALSE(ends[0]);
  EXPECT_EQ(out, -1);
}

TEST_F(LinkTest, AReplyAboutASlotThatWasNotAskedForIsNotTaken) {
  c.StartAll();
  Push();
  const ConnId conn = Conn();
  const wire::SlotEntry wrong{Slot(Elsewhere()), static_cast<uint32_t>(Code::kNotFound), 1};
  c.Answer(kLink, wire::EncodePushReply(Header(0), {&wrong, 1}, "no such table", c.pool));
  EXPECT_FALSE(ends[0]);
  EXPECT_FALSE(c.network.conns.at(conn).open);
}

TEST_F(LinkTest, WhatWasObeyedOnOneConnectionIsObeyedOnTheNext) {
  c.StartAll();
  Push();
  Push();
  c.Gap(kLink, Header(1), Slot(1), 1);
  EXPECT_EQ(c.core->rewinds(), 1u);
  c.Break(kLink);
  c.Inbox(kLink).clear();
  c.Wait(200'000);
  EXPECT_EQ(c.core->rewinds(), 2u);
  c.Gap(kLink, Header(1), Slot(1), 1);
  EXPECT_EQ(c.core->rewinds(), 3u);
}

TEST_F(LinkTest, AGapBeforeALaterAnswerIsAGap) {
  c.StartAll();
  for (int i = 0; i < 3; ++i) Push();
  const ConnId conn = Conn();
  c.AckPush(kLink, Header(1));
  c.Gap(kLink, Header(2), Slot(1), 1);  // the first one is lost, and still here
  EXPECT_EQ(c.core->rewinds(), 1u);
  EXPECT_EQ(Conn(), conn);
}

TEST_F(LinkTest, TheHighestAnswerCountsInWhateverOrderTheyCome) {
  c.StartAll();
  for (int i = 0; i < 3; ++i) Push();
  const ConnId conn = Conn();
  c.AckPush(kLink, Header(1));
  c.AckPush(kLink, Header(0));
  c.Gap(kLink, Header(2), Slot(1), 2);  // which was acknowledged
  EXPECT_FALSE(c.network.conns.at(conn).open) << "to see whether it was an old copy";
}

TEST_F(LinkTest, DoubtsAboutASlotThatGoesOnStartAnew) {
  c.StartAll();
  Push();
  Push();
  c.AckPush(kLink, Header(0));
  for (int round = 0; round < 2; ++round) {
    const wire::FrameHeader last = c.Inbox(kLink).back().header;
    for (int i = 0; i < 3; ++i) {
      c.Gap(kLink, last, Slot(1), 1);
      c.Wait(1'500'000);
      ASSERT_TRUE(c.core->fatal().ok()) << round << " " << i;
    }
    Push();
    c.AckPush(kLink, last);
    EXPECT_TRUE(ends[static_cast<size_t>(round) + 1]);
  }
}

TEST_F(LinkTest, DoubtsAboutSeveralSlotsAreNotAddedUp) {
  c.StartAll();
  const RowKey other = Elsewhere();
  for (RowKey key : {RowKey{1}, other}) {
    Push(key);
    c.AckPush(kLink, c.Inbox(kLink).back().header);
    Push(key);
  }
  const wire::FrameHeader one = Header(1), two = Header(3);
  for (int i = 0; i < 3; ++i) {
    c.Gap(kLink, one, Slot(1), 1);
    c.Wait(1'500'000);
    c.Gap(kLink, two, Slot(other), 1);
    c.Wait(1'500'000);
  }
  EXPECT_TRUE(c.core->fatal().ok()) << c.core->fatal().ToString();
}

TEST_F(LinkTest, AConnectionIsMadeAtOnceAgainIfTheLastOneWorked) {
  c.StartAll();
  for (int i = 0; i < 8; ++i) {
    const ConnId before = Conn();
    c.Break(kLink);
    c.Wait(40'000, 5'000);
    ASSERT_NE(Conn(), before) << i;
  }
}

TEST_F(LinkTest, AfterAnAnswerThePauseIsShortAgain) {
  c.StartAll();
  Push();
  for (int i = 0; i < 7; ++i) {
    c.Error(kLink, c.Take(kLink).header, Code::kUnavailable, "not yet");
    c.Wait(1'600'000);
    ASSERT_EQ(c.Inbox(kLink).size(), 1u);
  }
  c.AckPush(kLink, c.Take(kLink).header);
  Push();
  c.Error(kLink, c.Take(kLink).header, Code::kUnavailable, "not yet");
  c.Wait(40'000, 5'000);
  EXPECT_EQ(c.Inbox(kLink).size(), 1u);
}

TEST_F(LinkTest, ManyThatComeLaterComeAsSoonAsOne) {
  c.StartAll();
  for (int i = 0; i < 10; ++i) Push();
  while (!c.Inbox(kLink).empty()) c.Error(kLink, c.Take(kLink).header, Code::kUnavailable, "not yet");
  c.Wait(40'000, 5'000);
  EXPECT_EQ(c.Inbox(kLink).size(), 10u);
}

TEST_F(LinkTest, WhoIsToldToComeLaterDoesNotTakeTheShardForSilent) {
  c.options.reconnect.min_us = 500'000;
  c.StartAll();
  Push();
  const ConnId conn = Conn();
  c.Wait(2'950'000, 50'000);
  c.Error(kLink, c.Take(kLink).header, Code::kUnavailable, "not yet");
  c.Wait(300'000, 50'000);
  EXPECT_EQ(Conn(), conn);
  c.Wait(600'000, 50'000);
  EXPECT_EQ(Conn(), conn);
  EXPECT_EQ(c.Inbox(kLink).size(), 1u);
}

TEST_F(LinkTest, AConnectionThatIsNeverMadeIsTriedAgain) {
  c.StartAll();
  c.connects = false;
  c.Break(kLink);
  const size_t before = c.network.conns.size();
  c.Wait(10'000'000);
  EXPECT_GE(c.network.conns.size(), before + 3);
}

TEST_F(LinkTest, TheFirstPushAfterAPauseHasItsWholeTime) {
  c.StartAll();
  c.Wait(10'000'000);
  Push();
  const ConnId conn = Conn();
  c.Wait(2'500'000);
  EXPECT_EQ(Conn(), conn);
}

TEST_F(LinkTest, ARoundBehindALargeFrameIsNotTakenForLost) {
  c.StartAll();
  StartRound();
  const ConnId conn = Conn();
  for (int second = 0; second < 30; ++second) {
    ++c.network.bulk_progress;
    c.Wait(1'000'000);
  }
  EXPECT_EQ(Conn(), conn);
  c.Wait(10'000'000);
  EXPECT_NE(Conn(), conn);
}

TEST_F(LinkTest, ARoundThatIsKeptDoesNotHideALostPush) {
  c.StartAll();
  StartRound();
  Push();
  const ConnId conn = Conn();
  const uint64_t round = Header(0).request_id;
  for (int i = 0; i < 7; ++i) {
    c.Say(Conn(), wire::StillWaiting{round, sync.id, Round{0}, {1}});
    c.Wait(500'000);
  }
  EXPECT_NE(Conn(), conn);
}

TEST_F(LinkTest, AShardThatRefusesAtItsDoorSaysWhy) {
  c.StartAll();
  c.Say(Conn(), wire::Refusal{0, Code::kUnavailable, "something else"});
  EXPECT_TRUE(c.network.conns.at(Conn()).open) << "it was let in before";
  c.greets = false;
  c.Break(kLink);
  c.Wait(100'000);
  EXPECT_NE(Trouble().find("(something else)"), std::string::npos);
  c.Say(Conn(), wire::Refusal{0, Code::kUnavailable, "no state yet"});
  EXPECT_NE(Trouble().find("(no state yet)"), std::string::npos);
  c.greets = true;
  c.Wait(5'000'000);
  c.greets = false;
  c.Break(kLink);
  EXPECT_NE(Trouble().find("(not connected)"), std::string::npos) << "what was before it was let in is over";
}

TEST_F(LinkTest, WhatWasTakenForDamagedIsSaid) {
  c.StartAll();
  Push();
  c.greets = false;
  c.Error(kLink, Header(0), Code::kProtocol, "wrong checksum");
  EXPECT_NE(Trouble().find("(wrong checksum)"), std::string::npos);
}

TEST_F(LinkTest, WhatCanNotBeReadEndsTheConnectionAndIsSaid) {
  c.StartAll();
  const ConnId conn = Conn();
  c.greets = false;
  const wire::FramePtr bad = wire::EncodeControl(wire::HelloReply{}, c.pool);
  std::memset(bad->head.data() + sizeof(wire::FrameHeader), 0xEE, 8);
  wire::Seal(*bad);
  c.Deliver(conn, bad);
  EXPECT_FALSE(c.network.conns.at(conn).open);
  EXPECT_NE(Trouble().find("bad control message"), std::string::npos);
}

TEST_F(LinkTest, AShardThatRefusesAsRetiredIsTheEnd) {
  c.StartAll();
  c.Say(Conn(), wire::Refusal{0, Code::kRetired, "incarnation 7 was declared dead"});
  EXPECT_EQ(c.core->fatal().code(), Code::kRetired);
}

TEST_F(LinkTest, AGreetingWithANewerStateMakesTheClientAsk) {
  c.StartAll();
  c.heard.clear();
  c.Say(Conn(), wire::HelloReply{1, StateVersion{c.state.version.value + 5}});
  c.Run();
  EXPECT_EQ(c.heard.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<wire::Heartbeat>(c.heard.at(0)));
}

TEST_F(LinkTest, TheNewestStateThatAnybodyHasIsAskedFor) {
  c.StartAll();
  const uint64_t now = c.state.version.value;
  c.Say(Conn(), wire::HelloReply{1, StateVersion{now + 2}});
  c.Say(Conn(), wire::HelloReply{1, StateVersion{now + 1}});
  c.NewState();  // now + 1
  c.heard.clear();
  c.Wait(300'000, 50'000);
  EXPECT_GE(c.heard.size(), 3u);
}

TEST_F(LinkTest, StatesAreComparedWithThoseWhoHaveGreeted) {
  c.StartAll();
  c.scheduler_answers = c.greets = false;
  c.Break(kLink);
  c.Wait(5'000'000);
  EXPECT_TRUE(c.told_shards.empty());
}

// The shard's answers say nothing of its state: it had at least that of the request.
TEST_F(LinkTest, AnAnswerThatSaysNothingOfItsStateCoversARound) {
  for (wire::SlotOwner& owner : c.state.slots) owner.since = StateVersion{3};
  c.StartAll();
  StartRound();
  c.AnswerValues(kLink, c.Take(kLink), {}, Position::Of(1, 1));
  EXPECT_TRUE(ends[0]);
  EXPECT_TRUE(c.Inbox(kLink).empty()) << "marked again";
}

TEST_F(LinkTest, ACopyOfBorrowedValuesTravelsAsTheyWould) {
  wire::TableInfo packed =
      c.AddTable({.name = "z", .mode = Mode::kSync, .size = 100, .wire = WireFormat::kLz4});
  c.StartAll();
  Submit(PrepareRound(
             {.state = c.core->state().get(), .table = &packed, .values = std::as_bytes(std::span(values))},
             c.pool),
         1'000'000);
  c.Wait(1'500'000);
  ASSERT_TRUE(ends[0]);
  c.network.hold_frames = true;
  c.Break(kLink);
  c.Wait(200'000);
  ASSERT_FALSE(c.network.held.empty());
  EXPECT_EQ(c.network.held.back()->coding, wire::Coding::kLz4);
}

}  // namespace
}  // namespace cairn::client
