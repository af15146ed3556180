// Who is let in, with which number, and what becomes of it when a rank comes again (rules 2, 5 and 10).
#include "scheduler/core/fake_cluster.h"

namespace cairn::scheduler {
namespace {

struct Admitted : ::testing::Test {
  FakeCluster c{FakeCluster::Options(2, 2)};
  FakeNode s0, s1, w0, w1;
  void SetUp() override {
    c.Start();
    s0 = c.Server(9000), s1 = c.Server(9001), w0 = c.Worker(1), w1 = c.Worker(2);
    for (FakeNode* node : {&s0, &s1, &w0, &w1}) c.Beat(*node);
  }
  void ViewIsMade() { c.Beat(s0), c.Beat(s1); }
  wire::Refusal Refused(const wire::ControlMessage& message) {
    const ConnId conn = c.NewConn();
    c.Tell(conn, message);
    return c.Last<wire::Refusal>(conn).value_or(wire::Refusal{.code = Code::kOk});
  }
};

TEST(Admission, ProtocolsBeforeAndAfterThisOneAreRefused) {
  FakeCluster c(FakeCluster::Options(1, 1));
  c.Start();
  const auto register_with = [&](uint8_t least, uint8_t most) {
    const ConnId conn = c.NewConn();
    c.Tell(conn, wire::Register{.protocol_min = least,
                                .protocol_max = most,
                                .role = wire::Role::kWorker,
                                .uid = 5,
                                .endpoint = {"h", 0}});
    return c.Last<wire::Refusal>(conn).value_or(wire::Refusal{.code = Code::kOk}).code;
  };
  constexpr uint8_t kOurs = wire::kProtocolVersion;
  EXPECT_EQ(register_with(0, kOurs - 1), Code::kProtocol);
  EXPECT_EQ(register_with(kOurs + 1, kOurs + 2), Code::kProtocol);
  EXPECT_EQ(register_with(kOurs - 1, kOurs + 1), Code::kOk);
}

TEST(Admission, AServerSaysItsThreadsAndWhereItIs) {
  FakeCluster c(FakeCluster::Options(1, 1));
  c.Start();
  const auto refused = [&](uint32_t threads, const char* host, uint16_t port) {
    const ConnId conn = c.NewConn();
    c.Tell(conn, wire::Register{
                     .role = wire::Role::kServer, .uid = 5, .endpoint = {host, port}, .threads = threads});
    return c.Last<wire::Refusal>(conn).value_or(wire::Refusal{.code = Code::kOk}).text;
  };
  EXPECT_EQ(refused(0, "h", 1), "a server has 1 to 1024 threads, not 0");
  EXPECT_EQ(refused(1025, "h", 1), "a server has 1 to 1024 threads, not 1025");
  EXPECT_EQ(refused(1, "", 1), "a server must say where workers reach it (host and port)");
  EXPECT_EQ(refused(1, "h", 0), "a server must say where workers reach it (host and port)");
  EXPECT_EQ(refused(1024, "h", 1), "");
}

TEST(Admission, AServerBeyondTheExpectedIsToldTheRange) {
  FakeCluster c(FakeCluster::Options(3, 1));
  c.Start();
  const FakeNode server = c.Server(9000, 1, 3);
  const auto refusal = c.Last<wire::Refusal>(server.conn);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->code, Code::kInvalidArgument);
  EXPECT_EQ(refusal->text, "server 3 is outside 0..2: give one in that range, or none to have it chosen");
  EXPECT_EQ(c.Server(9000, 1, 2).rank, 2u);
}

TEST_F(Admitted, AServerOfARunningJobGetsTheIndexThatItWantsIfThatIsFree) {
  EXPECT_EQ(c.Server(9005, 1, 7).rank, 7u);
  EXPECT_EQ(c.Server(9006, 1, 7).rank, 2u) << "taken: the lowest that is free";
}

TEST_F(Admitted, ARankThatIsDoneIsNotGivenToAnother) {
  c.Tell(w1.conn, wire::Leave{w1.incarnation});
  EXPECT_EQ(c.Worker(3).rank, 2u);
}

TEST_F(Admitted, ARankThatIsGivenUpIsNotGivenToAnother) {
  c.Tell(c.NewConn(), wire::GiveUp{1});
  c.Advance(5'100'000, {&s0, &s1, &w0});
  ASSERT_EQ(c.state().workers.size(), 1u);
  EXPECT_EQ(c.Worker(3).rank, 2u);
}

TEST_F(Admitted, AGivenUpRankThatComesAgainIsAwaitedAgain) {
  c.Tell(c.NewConn(), wire::GiveUp{1});
  FakeNode again = c.Worker(3, 1);
  EXPECT_TRUE(c.durable().given_up_ranks.empty());
  ViewIsMade();
  c.Tell(w0.conn, wire::Leave{w0.incarnation});
  c.Advance(5'100'000, {&s0, &s1});
  ASSERT_TRUE(c.state().workers.empty());
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning) << "it may be restarted, as any other";
}

// A rank beyond the expected is one of the job from its first view on.
TEST_F(Admitted, OneThatJoinedLaterIsAwaitedWhenItIsDead) {
  FakeNode w2 = c.Worker(3);
  EXPECT_EQ(Refused(wire::GiveUp{3}).code, Code::kInvalidArgument);
  ViewIsMade();
  EXPECT_TRUE(c.durable().joined_ranks.contains(2));
  c.Advance(5'100'000, {&s0, &s1, &w0, &w1});
  ASSERT_EQ(c.state().workers.size(), 2u);
  EXPECT_EQ(c.Last<wire::HeartbeatReply>(w0.conn)->awaiting, "rank 2 is dead, not yet restarted");
  EXPECT_EQ(Refused(wire::GiveUp{2}).code, Code::kOk);
  EXPECT_TRUE(c.durable().given_up_ranks.contains(2));
}

TEST_F(Admitted, WhoHasLeftAndRegistersAgainIsToldThatItHas) {
  c.Tell(w0.conn, wire::Leave{w0.incarnation});
  const ConnId conn = c.NewConn();
  c.Tell(conn, w0.hello);
  EXPECT_EQ(c.Last<wire::LeaveReply>(conn).value_or(wire::LeaveReply{}).incarnation, w0.incarnation);
  EXPECT_FALSE(c.Last<wire::Registered>(conn).has_value());
}

TEST_F(Admitted, AServerDoesNotLeaveAsWorkersDo) {
  const auto version = c.state().version;
  EXPECT_EQ(Refused(wire::Leave{s0.incarnation}).code, Code::kInvalidArgument);
  EXPECT_EQ(c.state().version, version);
}

TEST_F(Admitted, WhatAWorkerAskedForIsForgottenWithIt) {
  c.Tell(w0.conn, wire::CreateTable{1, w0.incarnation, DenseSync("a")});
  c.Beat(s0), c.Beat(s1);
  ASSERT_EQ(c.durable().operations.size(), 1u);
  c.Tell(w0.conn, wire::Leave{w0.incarnation});
  EXPECT_TRUE(c.durable().operations.empty());
}

// A request whose record is awaited holds others up; one of a worker that is gone does not.
TEST_F(Admitted, NobodyWaitsForTheTableOfAWorkerThatLeftOrWasReplaced) {
  const auto create = [&](const FakeNode& worker, uint64_t request, const char* name) {
    c.Tell(worker.conn, wire::CreateTable{request, worker.incarnation, DenseSync(name)});
  };
  create(w0, 1, "a"), create(w1, 1, "b");
  ASSERT_EQ(c.state().tables.size(), 1u);
  c.Tell(w0.conn, wire::Leave{w0.incarnation});
  EXPECT_EQ(c.state().tables.size(), 2u);
  FakeNode w2 = c.Worker(3, 2), w3 = c.Worker(4, 3);
  ViewIsMade(), ViewIsMade(), ViewIsMade();
  ASSERT_EQ(c.state().pending_view, ViewNumber(0));
  create(w1, 2, "c"), create(w2, 1, "d");
  ASSERT_EQ(c.state().tables.size(), 3u);
  FakeNode again = c.Worker(9, 1);  // the view that it waits for comes after the tables
  ViewIsMade();
  EXPECT_EQ(c.state().tables.size(), 4u);
}

}  // namespace
}  // namespace cairn::scheduler
