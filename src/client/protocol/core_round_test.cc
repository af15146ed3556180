// Rounds and pulls: gating, values back into the caller's memory, reads that never go back.
#include <gtest/gtest.h>

#include <cstring>

#include "client/protocol/fake_cluster.h"

namespace cairn::client {
namespace {

class RoundTest : public ::testing::Test {
 protected:
  static constexpr size_t kSize = 40'000;  // 40 blocks over 16 slots: every shard thread has some
  RoundTest()
      : table(c.AddTable({.name = "w", .mode = Mode::kSync, .size = kSize})),
        other(c.AddTable({.name = "a", .size = kSize})),
        gradient(kSize),
        out(kSize) {
    for (size_t i = 0; i < kSize; ++i) gradient[i] = static_cast<float>(i);
  }
  PartitionInput Input(const wire::TableInfo& info) {
    return {.state = c.core->state().get(), .table = &info};
  }
  void Submit(Result<Request> request, int64_t timeout_us = 600'000'000) {
    ASSERT_TRUE(request.ok()) << request.status().ToString();
    request->deadline_us = c.now + timeout_us;
    const size_t at = ends.size();
    ends.emplace_back();
    request->done = [this, at](Status s) {
      EXPECT_FALSE(ends[at]);
      ends[at] = s;
    };
    c.core->Submit(std::move(*request), c.now);
    c.Run();
  }
  void Round_(bool pull_after = false, int64_t timeout_us = 600'000'000) {
    PartitionInput input = Input(table);
    input.values = std::as_bytes(std::span(gradient));
    input.pull_after = pull_after;
    if (pull_after) input.out = std::as_writable_bytes(std::span(out));
    Submit(PrepareRound(input, c.pool), timeout_us);
  }
  void Pull(const wire::TableInfo& info, int64_t timeout_us = 600'000'000) {
    PartitionInput input = Input(info);
    input.out = std::as_writable_bytes(std::span(out));
    Submit(PreparePull(input, c.pool), timeout_us);
  }
  // Answers every frame that a shard thread has got by now, with its own values plus `add`.
  void CloseAt(Link link, float add = 0, Position position = Position::Of(1, 1)) {
    for (size_t left = c.Inbox(link).size(); left > 0; --left) {
      const wire::InFrame frame = c.Take(link);
      if (frame.header.type == wire::FrameType::kPull) {
        const wire::PullView pull = wire::DecodePull(frame.header, frame.body()).value();
        size_t elements = 0;
        for (const wire::SlotEntry& entry : pull.entries) elements += entry.count;
        const std::vector<float> values(elements, add);
        c.AnswerValues(link, frame, Bytes(values), position);
        continue;
      }
      const wire::PushView push = wire::DecodePush(frame.header, frame.body()).value();
      std::vector<float> values(push.values.size() / sizeof(float));
      if (!values.empty()) std::memcpy(values.data(), push.values.data(), push.values.size());
      for (float& v : values) v += add;
      const bool with = (frame.header.flags & wire::kFlagPullAfter) != 0;
      c.AnswerValues(link, frame, with ? Bytes(values) : std::vector<std::byte>(), position);
    }
  }
  static std::vector<std::byte> Bytes(const std::vector<float>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return {bytes.begin(), bytes.end()};
  }
  std::vector<uint64_t> RoundsAt(Link link) {
    std::vector<uint64_t> rounds;
    for (const wire::InFrame& frame : c.Inbox(link)) rounds.push_back(frame.header.round);
    return rounds;
  }

  FakeCluster c;
  wire::TableInfo table, other;
  std::vector<float> gradient, out;
  std::vector<std::optional<Status>> ends;
};

TEST_F(RoundTest, TheNextRoundStartsWhenEveryShardThreadHasClosedTheLast) {
  c.StartAll();
  EXPECT_EQ(c.core->next_round(table.id), Round{0});
  Round_();
  Round_();
  EXPECT_EQ(c.core->next_round(table.id), Round{2});
  const std::vector<Link> links = c.Links();
  for (size_t i = 0; i < links.size(); ++i) {
    for (Link link : links) {
      for (uint64_t round : RoundsAt(link)) EXPECT_EQ(round, 0u);
    }
    EXPECT_FALSE(ends[0]);
    CloseAt(links[i]);
  }
  ASSERT_TRUE(ends[0] && ends[0]->ok());
  EXPECT_FALSE(ends[1]);
  for (Link link : links) {
    ASSERT_FALSE(RoundsAt(link).empty());
    for (uint64_t round : RoundsAt(link)) EXPECT_EQ(round, 1u);
    CloseAt(link);
  }
  EXPECT_TRUE(ends[1] && ends[1]->ok());
  EXPECT_EQ(c.rounds, (std::vector<std::pair<uint64_t, Code>>{{0, Code::kOk}, {1, Code::kOk}}));
}

TEST_F(RoundTest, AJoinerStartsWhereItsViewSays) {
  c.state.view = ViewNumber{2};
  c.state.views.push_back({ViewNumber{2}, {{table.id, Round{118}}}});
  c.state.workers[0].join_view = ViewNumber{2};
  c.StartAll();
  EXPECT_EQ(c.core->next_round(table.id), Round{118});
  Pull(table);
  EXPECT_EQ(RoundsAt({0, 0})[0], 118u);
  // The fake servers are not on this host: values are covered by the checksum.
  EXPECT_EQ(c.Inbox({0, 0})[0].header.flags,
            wire::kFlagSyncPull | wire::kFlagValuesChecked | wire::kFlagTrip);
  // Later states may no longer list the view.
  c.state.views = {{ViewNumber{9}, {}}};
  const wire::TableInfo later = c.AddTable({.name = "later", .mode = Mode::kSync, .size = 10});
  c.NewState();
  EXPECT_EQ(c.core->next_round(table.id), Round{118});
  EXPECT_EQ(c.core->next_round(later.id), Round{0});
}

TEST_F(RoundTest, PushPullScattersTheValuesOfEveryPart) {
  c.StartAll();
  Round_(true);
  for (Link link : c.Links()) CloseAt(link, 0.5f);
  ASSERT_TRUE(ends[0] && ends[0]->ok());
  for (size_t i = 0; i < kSize; ++i) ASSERT_EQ(out[i], gradient[i] + 0.5f);
}

TEST_F(RoundTest, APullAfterARoundWaitsForThatRound) {
  c.StartAll();
  Round_();
  Round_();
  Pull(table);
  for (Link link : c.Links()) CloseAt(link);
  const std::vector<uint64_t> rounds = RoundsAt({0, 0});  // round 1 and, behind it, the pull after it
  EXPECT_EQ(rounds.front(), 1u);
  EXPECT_EQ(rounds.back(), 2u);
  EXPECT_EQ(c.Inbox({0, 0}).back().header.type, wire::FrameType::kPull);
}

TEST_F(RoundTest, ABareDoneGoesToEveryShardThread) {
  c.StartAll();
  Submit(PrepareRound(Input(table), c.pool));
  for (Link link : c.Links()) {
    ASSERT_EQ(c.Inbox(link).size(), 1u);
    EXPECT_EQ(c.Inbox(link)[0].header.type, wire::FrameType::kDone);
    CloseAt(link);
  }
  EXPECT_TRUE(ends[0]->ok());
}

TEST_F(RoundTest, ARefusedRoundEndsTheCallAndCountsAsFinished) {
  c.StartAll();
  Round_();
  const wire::InFrame frame = c.Take({0, 0});
  const wire::SlotEntry problem{0, static_cast<uint32_t>(Code::kHyperMismatch), 0};
  c.Answer({0, 0},
           wire::EncodeRoundRefusal(frame.header, {&problem, 1}, "ranks 0 and 1 differ in lr", c.pool));
  for (Link link : c.Links()) CloseAt(link);
  ASSERT_TRUE(ends[0]);
  EXPECT_EQ(*ends[0], Status(Code::kHyperMismatch, "ranks 0 and 1 differ in lr"));
  EXPECT_EQ(c.rounds.at(0), (std::pair<uint64_t, Code>{0, Code::kHyperMismatch}));
  EXPECT_EQ(c.core->next_round(table.id), Round{1});
}

TEST_F(RoundTest, PastItsDeadlineARoundGoesOnWithoutTheCallersMemory) {
  c.StartAll();
  Round_(true, 5'000'000);
  Round_();
  const wire::InFrame& first = c.Inbox({0, 0})[0];
  c.Say(c.conn_of.at({0, 0}), wire::StillWaiting{first.header.request_id, table.id, Round{0}, {1, 3}});
  c.Wait(5'500'000);
  ASSERT_TRUE(ends[0]);
  EXPECT_EQ(*ends[0], Status(Code::kDeadlineExceeded,
                             "round 0 of table \"w\" was not finished in time: ranks 1, 3 are missing"));
  EXPECT_FALSE(ends[1]);
  std::vector<float> kept = gradient;
  std::fill(gradient.begin(), gradient.end(), -1.0f);  // the caller's memory is the caller's again
  std::fill(out.begin(), out.end(), -7.0f);
  for (Link link : c.Links()) {
    c.Break(link);
    c.Inbox(link).clear();
  }
  c.Wait(200'000);
  double sum = 0, expected = 0;
  for (Link link : c.Links()) {
    for (const wire::InFrame& frame : c.Inbox(link)) {
      EXPECT_EQ(frame.header.round, 0u);
      const wire::PushView push = wire::DecodePush(frame.header, frame.body()).value();
      for (size_t at = 0; at < push.values.size(); at += sizeof(float)) {
        float value;
        std::memcpy(&value, push.values.data() + at, sizeof(value));
        sum += value;
      }
    }
  }
  for (float v : kept) expected += v;
  EXPECT_EQ(sum, expected);
  for (Link link : c.Links()) CloseAt(link, 0.5f);
  for (float v : out) ASSERT_EQ(v, -7.0f);
  EXPECT_EQ(c.rounds.size(), 1u);
  EXPECT_EQ(RoundsAt({0, 0}).at(0), 1u);  // and the next one starts
}

TEST_F(RoundTest, ATransportThatStillHoldsBorrowedValuesIsClosedBeforeTheCallEnds) {
  c.network.hold_frames = true;
  c.StartAll();
  Round_(false, 5'000'000);
  std::map<Link, ConnId> before = c.conn_of;
  bool open_at_end = true;
  c.greets = false;
  c.Wait(5'500'000);
  ASSERT_TRUE(ends[0]);
  for (auto& [link, conn] : before) open_at_end &= c.network.conns.at(conn).open;
  EXPECT_FALSE(open_at_end);
}

// The copy of an answered frame that waits in the transport is the caller's memory, too.
TEST_F(RoundTest, AConnectionThatHoldsAnAnsweredFrameIsReplacedOnce) {
  constexpr Link kLink{0, 0};
  c.StartAll();
  Round_();
  c.Inbox(kLink).clear();
  c.Break(kLink);
  c.network.hold_frames = true;
  c.Wait(200'000);  // it is sent again
  const ConnId holds = c.conn_of.at(kLink);
  CloseAt(kLink);
  EXPECT_FALSE(c.network.conns.at(holds).open);
  c.network.hold_frames = false;
  c.network.held.clear();
  c.Wait(1'000'000);
  const ConnId fresh = c.conn_of.at(kLink);
  ASSERT_NE(fresh, holds);
  for (Link link : c.Links()) CloseAt(link);
  Round_();
  for (Link link : c.Links()) CloseAt(link);
  ASSERT_TRUE(ends[1] && ends[1]->ok());
  EXPECT_TRUE(c.network.conns.at(fresh).open);
}

TEST_F(RoundTest, ADroppedPullsAnswerTouchesNothing) {
  c.StartAll();
  Pull(other, 1'000'000);
  c.Wait(1'500'000);
  ASSERT_TRUE(ends[0]);
  EXPECT_EQ(ends[0]->code(), Code::kDeadlineExceeded);
  for (Link link : c.Links()) CloseAt(link, 9.0f);
  for (float v : out) ASSERT_EQ(v, 0.0f);
}

TEST_F(RoundTest, ReadsNeverGoBack) {
  c.StartAll();
  Pull(other);
  for (Link link : c.Links()) CloseAt(link, 1.0f, Position::Of(1, 10));
  ASSERT_TRUE(ends[0] && ends[0]->ok());
  const size_t reads = c.reads.size();
  Pull(other);
  for (Link link : c.Links()) CloseAt(link, 2.0f, Position::Of(1, 9));
  EXPECT_FALSE(ends[1]);
  EXPECT_EQ(c.reads.size(), reads);
  for (float v : out) ASSERT_EQ(v, 1.0f);
  c.Wait(200'000);  // asked again
  for (Link link : c.Links()) CloseAt(link, 3.0f, Position::Of(2, 0));
  ASSERT_TRUE(ends[1] && ends[1]->ok());
  for (float v : out) ASSERT_EQ(v, 3.0f);
}

TEST_F(RoundTest, AnswersOfAnotherShapeAreNotTaken) {
  c.StartAll();
  Pull(other);
  const ConnId before = c.conn_of.at({0, 0});
  const wire::InFrame frame = c.Take({0, 0});
  c.AnswerValues({0, 0}, frame, {}, Position::Of(1, 1));
  c.Wait(100'000);
  EXPECT_NE(c.conn_of.at({0, 0}), before);
  for (Link link : c.Links()) CloseAt(link, 4.0f);
  ASSERT_TRUE(ends[0] && ends[0]->ok());
  for (float v : out) ASSERT_EQ(v, 4.0f);
}

TEST_F(RoundTest, ABusyShardGetsOnlyThatContributionAgain) {
  c.StartAll();
  Round_();
  const wire::InFrame frame = c.Take({0, 0});
  c.Error({0, 0}, frame.header, Code::kResourceExhausted, "not this rank's turn");
  EXPECT_FALSE(ends[0]);
  const size_t others = c.Inbox({0, 0}).size();
  c.Wait(200'000);
  ASSERT_EQ(c.Inbox({0, 0}).size(), others + 1);
  EXPECT_EQ(c.Inbox({0, 0}).back().header.request_id, frame.header.request_id);
  for (Link link : c.Links()) CloseAt(link);
  EXPECT_TRUE(ends[0]->ok());
}

TEST_F(RoundTest, ParkedRequestsAreKeptAliveByStillWaiting) {
  c.StartAll();
  Round_();
  const std::map<Link, ConnId> before = c.conn_of;
  for (int i = 0; i < 8; ++i) {
    c.Wait(3'000'000);
    for (Link link : c.Links()) {
      const uint64_t id = c.Inbox(link)[0].header.request_id;
      c.Say(c.conn_of.at(link), wire::StillWaiting{id, table.id, Round{0}, {1}});
    }
  }
  EXPECT_EQ(c.conn_of, before);
  ASSERT_FALSE(c.log.empty());
  EXPECT_EQ(c.log.back(), "rank 0 waits for round 0 of table \"w\": rank 1 is missing");
  c.Wait(10'000'000);  // now they are silent
  EXPECT_NE(c.conn_of, before);
}

TEST_F(RoundTest, ABarrierAgainstARoundIsReported) {
  c.StartAll();
  Round_(false, 15'000'000);
  c.awaiting = "barrier 1: rank 0 has not arrived";
  for (int i = 0; i < 4; ++i) {
    c.Wait(3'000'000);
    for (Link link : c.Links()) {
      const uint64_t id = c.Inbox(link)[0].header.request_id;
      c.Say(c.conn_of.at(link), wire::StillWaiting{id, table.id, Round{0}, {1}});
    }
  }
  ASSERT_FALSE(c.log.empty());
  EXPECT_EQ(c.log.back(), "rank 1 is in a barrier, rank 0 waits for round 0 of table \"w\"");
  c.Wait(3'500'000);
  ASSERT_TRUE(ends[0]);
  EXPECT_EQ(ends[0]->message(),
            "round 0 of table \"w\" was not finished in time: rank 1 is missing; rank 1 is in a "
            "barrier");
}

TEST_F(RoundTest, APullOfWhatNobodyHasAssignedAsksAgain) {
  c.StartAll();
  const auto pull = [&](int64_t timeout_us) {
    PartitionInput input = Input(other);
    input.out = std::as_writable_bytes(std::span(out));
    input.when_assigned = true;
    Submit(PreparePull(input, c.pool), timeout_us);
  };
  const auto not_yet = [&] {
    for (Link link : c.Links()) {
      while (!c.Inbox(link).empty()) {
        EXPECT_NE(c.Inbox(link)[0].header.flags & wire::kFlagAssigned, 0);
        c.Error(link, c.Take(link).header, Code::kUnavailable, "not assigned yet");
      }
    }
  };
  pull(600'000'000);
  const std::map<Link, ConnId> before = c.conn_of;
  for (int i = 0; i < 20; ++i) {
    not_yet();
    c.Wait(1'500'000);
    for (Link link : c.Links()) ASSERT_EQ(c.Inbox(link).size(), 1u) << i;
  }
  EXPECT_EQ(c.conn_of, before);
  ASSERT_FALSE(c.log.empty());
  EXPECT_EQ(c.log.back(), "rank 0 waits for a pull of table \"a\": nobody has assigned its values yet");
  for (Link link : c.Links()) CloseAt(link, 4.0f);
  ASSERT_TRUE(ends[0] && ends[0]->ok());
  EXPECT_EQ(out, std::vector<float>(kSize, 4.0f));
  pull(2'000'000);
  not_yet();
  c.Wait(2'500'000);
  ASSERT_TRUE(ends[1]);
  EXPECT_EQ(ends[1]->message(),
            "a pull of table \"a\" was not finished in time: nobody has assigned its values yet");
}

TEST_F(RoundTest, RoundsAreOutsideTheBoundOfFrames) {
  c.options.max_unacked_frames = 1;
  c.StartAll();
  Round_();
  size_t frames = 0;
  for (Link link : c.Links()) {
    ASSERT_FALSE(c.Inbox(link).empty());
    frames += c.Inbox(link).size();
    // The mark, on the last frame, has come: nothing is held back.
    EXPECT_NE(c.Inbox(link).back().header.flags & wire::kFlagDone, 0);
  }
  EXPECT_EQ(frames, c.core->frames_sent());
}

TEST_F(RoundTest, APullBehindHeldBackPushesComesAfterThem) {
  c.options.max_unacked_bytes = 10;
  c.StartAll();
  PartitionInput input = Input(other);
  input.values = std::as_bytes(std::span(gradient));
  Submit(PreparePush(input, c.pool));
  Submit(PreparePush(input, c.pool));
  Pull(other);
  for (Link link : c.Links()) {
    for (const wire::InFrame& frame : c.Inbox(link)) EXPECT_EQ(frame.header.type, wire::FrameType::kPush);
    while (!c.Inbox(link).empty() && !ends[0]) c.AckPush(link, c.Take(link).header);
  }
  ASSERT_TRUE(ends[0]);
  EXPECT_EQ(c.Inbox({0, 0}).back().header.type, wire::FrameType::kPull);
}

}  // namespace
}  // namespace cairn::client
