// Start, tables, leaving, and the ends that a worker can come to.
#include <gtest/gtest.h>

#include "client/protocol/fake_cluster.h"

namespace cairn::client {
namespace {

template <class Message>
size_t Heard(const FakeCluster& c) {
  return static_cast<size_t>(std::count_if(c.heard.begin(), c.heard.end(),
                                           [](const auto& m) { return std::holds_alternative<Message>(m); }));
}

TEST(Start, EndsWhenRegisteredInAViewAndGreetedByEveryShardThread) {
  FakeCluster c;
  c.state.workers[0].join_view = ViewNumber{0};
  c.greets = false;
  c.Make();
  c.core->Start(c.now + 60'000'000, [&](Status s) { c.started = s; }, c.now);
  c.Run();
  EXPECT_FALSE(c.started);  // not in a view, not greeted
  c.state.workers[0].join_view = ViewNumber{1};
  c.NewState();
  EXPECT_FALSE(c.started);
  ASSERT_EQ(c.conn_of.size(), 4u);
  for (Link link : c.Links()) {
    EXPECT_FALSE(c.started);
    c.Say(c.conn_of.at(link), wire::HelloReply{});
  }
  ASSERT_TRUE(c.started);
  EXPECT_TRUE(c.started->ok());
  EXPECT_EQ(c.core->incarnation(), Incarnation{7});
  EXPECT_EQ(c.core->rank(), Rank{0});
  EXPECT_EQ(c.core->state()->version, c.state.version);
}

TEST(Start, SaysEveryFewSecondsWhoIsMissingAndEndsAtItsDeadline) {
  FakeCluster c;
  c.connects = false;
  c.Make();
  c.core->Start(c.now + 20'000'000, [&](Status s) { c.started = s; }, c.now);
  c.Wait(3'500'000);
  ASSERT_EQ(c.log.size(), 1u);
  EXPECT_EQ(c.log[0], "no answer from the scheduler at 127.0.0.1:8118 yet");
  c.connects = true;
  c.state.phase = wire::Phase::kForming;
  const auto slots = std::exchange(c.state.slots, {});
  c.awaiting = "waiting for 1 of 2 servers (server 1)";
  c.Wait(7'000'000);
  ASSERT_GE(c.log.size(), 2u);
  EXPECT_EQ(c.log.back(), "waiting for 1 of 2 servers (server 1)");
  c.state.phase = wire::Phase::kRunning;
  c.state.slots = slots;
  c.greets = false;
  c.NewState();
  c.Wait(10'000'000);
  ASSERT_TRUE(c.started);
  EXPECT_EQ(c.started->code(), Code::kDeadlineExceeded);
  EXPECT_NE(c.started->message().find("no answer from server 0 thread 0 at 10.0.0.0:7000 yet"),
            std::string::npos);
}

TEST(Start, RepeatsRegistrationOnANewConnection) {
  FakeCluster c;
  c.scheduler_answers = false;
  c.Make();
  c.core->Start(c.now + 60'000'000, [&](Status s) { c.started = s; }, c.now);
  c.Run();
  c.Wait(2'500'000);
  EXPECT_GE(Heard<wire::Register>(c), 3u);
  const ConnId first = c.SchedulerConn();
  c.Wait(2'000'000);
  EXPECT_NE(c.SchedulerConn(), first);  // silent: made anew
  c.scheduler_answers = true;
  c.Wait(5'000'000);
  ASSERT_TRUE(c.started);
  EXPECT_TRUE(c.started->ok());
}

TEST(Start, ARefusalEndsItWithTheSchedulersWords) {
  FakeCluster c;
  c.scheduler_answers = false;
  c.Make();
  c.core->Start(c.now + 60'000'000, [&](Status s) { c.started = s; }, c.now);
  c.Run();
  c.Say(c.SchedulerConn(), wire::Refusal{0, Code::kUnavailable, "not yet"});
  EXPECT_FALSE(c.started);
  c.Say(c.SchedulerConn(), wire::Refusal{0, Code::kProtocol, "this is cluster x, not c"});
  ASSERT_TRUE(c.started);
  EXPECT_EQ(*c.started, Status(Code::kProtocol, "this is cluster x, not c"));
  EXPECT_EQ(c.core->fatal().code(), Code::kProtocol);
}

TEST(Start, AShardThatIsNotReadyIsAskedAgain) {
  FakeCluster c;
  c.greets = false;
  c.Make();
  c.core->Start(c.now + 60'000'000, [&](Status s) { c.started = s; }, c.now);
  c.Run();
  const ConnId refused = c.conn_of.at({0, 0});
  for (Link link : c.Links()) c.Say(c.conn_of.at(link), wire::Refusal{0, Code::kUnavailable, "no state yet"});
  c.greets = true;
  c.Wait(1'000'000);
  EXPECT_NE(c.conn_of.at({0, 0}), refused);
  ASSERT_TRUE(c.started && c.started->ok());
}

TEST(State, OlderVersionsAndTermsAreIgnored) {
  FakeCluster c;
  c.StartAll();
  wire::ClusterState old = c.state;
  old.version = StateVersion{4};
  old.phase = wire::Phase::kFailed;
  c.Say(c.SchedulerConn(), wire::StateMessage{old});
  EXPECT_TRUE(c.core->fatal().ok());
  c.state.term = Term{3};
  c.NewState();
  wire::ClusterState deposed = c.state;
  deposed.term = Term{2};
  deposed.version = StateVersion{100};
  deposed.phase = wire::Phase::kFailed;
  c.Say(c.SchedulerConn(), wire::StateMessage{deposed});
  EXPECT_TRUE(c.core->fatal().ok());
  wire::ClusterState broken = c.state;
  broken.version = StateVersion{101};
  broken.slots[3].server = 9;
  c.Say(c.SchedulerConn(), wire::StateMessage{broken});
  EXPECT_EQ(c.core->state()->version, c.state.version);
}

TEST(Tables, AreAskedForUntilTheStateHasThem) {
  FakeCluster c;
  c.StartAll();
  c.tables_answered = false;
  std::optional<Result<wire::TableInfo>> made;
  TableSpec spec{.name = "w", .size = 100};
  c.core->CreateTable(
      spec, c.now + 60'000'000, [&](Result<wire::TableInfo> r) { made = std::move(r); }, c.now);
  c.Run();
  c.Wait(2'500'000);
  EXPECT_EQ(Heard<wire::CreateTable>(c), 3u);
  c.tables_answered = true;
  c.Wait(1'500'000);
  ASSERT_TRUE(made && made->ok());
  EXPECT_EQ((*made)->spec, spec);
  EXPECT_NE(c.core->state()->FindTable("w"), nullptr);
}

TEST(Tables, ErrorsAndDeadlinesComeBack) {
  FakeCluster c;
  c.StartAll();
  c.tables_answered = false;
  std::vector<Status> ends;
  const auto done = [&](Result<wire::TableInfo> r) { ends.push_back(r.status()); };
  c.core->CreateTable({.name = "a", .size = 1}, c.now + 60'000'000, done, c.now);
  c.core->CreateTable({.name = "b", .size = 1}, c.now + 2'000'000, done, c.now);
  c.Run();
  c.Say(c.SchedulerConn(), wire::TableReply{1, Code::kAlreadyExists, "size differs", {}, {}});
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0], Status(Code::kAlreadyExists, "size differs"));
  c.Wait(2'500'000);
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends[1].code(), Code::kDeadlineExceeded);
}

TEST(Leave, WaitsForAcknowledgementsAndIsRepeated) {
  FakeCluster c;
  const wire::TableInfo& table = c.AddTable({.name = "w", .element = ElementType::kInt64, .size = 8});
  c.StartAll();
  const std::vector<int64_t> values(8, 1);
  PartitionInput input{
      .state = c.core->state().get(), .table = &table, .values = std::as_bytes(std::span(values))};
  Request push = PreparePush(input, c.pool).value();
  const Link link{push.parts[0].server, push.parts[0].thread};
  push.deadline_us = c.now + 60'000'000;
  c.core->Submit(std::move(push), c.now);
  std::optional<Status> left;
  c.leave_answered = false;
  c.core->Leave(c.now + 60'000'000, [&](Status s) { left = s; }, c.now);
  c.Run();
  EXPECT_EQ(Heard<wire::Leave>(c), 0u);
  c.AckPush(link, c.Take(link).header);
  EXPECT_EQ(Heard<wire::Leave>(c), 1u);
  // A late refusal of a heartbeat is not a death: the worker is no longer listed.
  c.Say(c.SchedulerConn(), wire::Refusal{0, Code::kRetired, "unknown"});
  EXPECT_FALSE(left);
  c.leave_answered = true;
  c.Wait(1'500'000);
  EXPECT_EQ(Heard<wire::Leave>(c), 2u);
  ASSERT_TRUE(left);
  EXPECT_TRUE(left->ok());
  EXPECT_TRUE(c.core->fatal().ok());
  std::optional<Status> late;
  c.core->Barrier(c.now + 1, [&](Status s) { late = s; }, c.now);
  EXPECT_EQ(late->code(), Code::kInvalidArgument);
}

TEST(Leave, OneThatTimedOutHasAnotherDeadlineTheNextTime) {
  FakeCluster c;
  c.StartAll();
  c.leave_answered = false;
  std::optional<Status> left;
  c.core->Leave(c.now + 2'000'000, [&](Status s) { left = s; }, c.now);
  c.Wait(2'500'000);
  ASSERT_TRUE(left);
  EXPECT_EQ(left->code(), Code::kDeadlineExceeded);
  left.reset();
  c.core->Leave(c.now + 60'000'000, [&](Status s) { left = s; }, c.now);
  c.Wait(5'000'000);
  EXPECT_FALSE(left);
  c.leave_answered = true;
  c.Wait(1'500'000);
  ASSERT_TRUE(left);
  EXPECT_TRUE(left->ok());
}

TEST(Leave, TheStateIsProofToo) {
  FakeCluster c;
  c.StartAll();
  c.leave_answered = false;
  std::optional<Status> left;
  c.core->Leave(c.now + 60'000'000, [&](Status s) { left = s; }, c.now);
  c.Run();
  c.state.workers.erase(c.state.workers.begin());
  c.state.done_ranks = {0};
  c.NewState();
  ASSERT_TRUE(left);
  EXPECT_TRUE(left->ok());
}

// The last worker's answer is lost with the scheduler, which has ended with the job.
TEST(Leave, ASchedulerThatIsGoneForGoodIsNotAwaitedForEver) {
  FakeCluster c;
  c.StartAll();
  c.leave_answered = false;
  std::optional<Status> left;
  c.core->Leave(c.now + 1'800'000'000, [&](Status s) { left = s; }, c.now);
  c.Run();
  EXPECT_EQ(Heard<wire::Leave>(c), 1u);
  const ConnId conn = c.SchedulerConn();
  c.connects = false;
  c.network.conns.at(conn).open = false;
  c.core->OnDisconnect(conn, c.now);
  c.Wait(50'000'000);
  EXPECT_FALSE(left);  // it may only be restarted
  c.Wait(15'000'000);
  ASSERT_TRUE(left);
  EXPECT_EQ(left->code(), Code::kOutcomeUnknown);
  // It may be waited for again, and a scheduler that comes back after all settles it.
  left.reset();
  c.core->Leave(c.now + 1'800'000'000, [&](Status s) { left = s; }, c.now);
  c.leave_answered = c.connects = true;
  c.Wait(5'000'000);
  ASSERT_TRUE(left);
  EXPECT_TRUE(left->ok());
}

TEST(Ends, RetiredFailedAndEndedEndEveryCall) {
  for (int kind = 0; kind < 3; ++kind) {
    SCOPED_TRACE(kind);
    FakeCluster c;
    const wire::TableInfo table = c.AddTable({.name = "w", .element = ElementType::kInt64, .size = 8});
    c.StartAll();
    const std::vector<int64_t> values(8, 1);
    std::vector<int64_t> out(8);
    PartitionInput input{
        .state = c.core->state().get(), .table = &table, .values = std::as_bytes(std::span(values))};
    Status pushed, pulled, barrier;
    Request push = PreparePush(input, c.pool).value();
    push.deadline_us = c.now + 60'000'000;
    push.done = [&](Status s) { pushed = s; };
    c.core->Submit(std::move(push), c.now);
    input.out = std::as_writable_bytes(std::span(out));
    Request pull = PreparePull(input, c.pool).value();
    pull.deadline_us = c.now + 60'000'000;
    pull.done = [&](Status s) { pulled = s; };
    c.core->Submit(std::move(pull), c.now);
    c.core->Barrier(c.now + 60'000'000, [&](Status s) { barrier = s; }, c.now);
    c.Run();
    if (kind == 0) c.state.workers.erase(c.state.workers.begin());
    if (kind == 1) c.state.phase = wire::Phase::kFailed;
    if (kind == 1) c.state.failure = "server 1 at 10.0.0.1:7000 was lost";
    if (kind == 2) c.state.phase = wire::Phase::kEnded;
    c.NewState();
    const Code code = kind == 0 ? Code::kRetired : Code::kJobFailed;
    const char* text = kind == 0   ? "declared dead"
                       : kind == 1 ? "server 1 at 10.0.0.1:7000"
                                   : "the job has ended";
    EXPECT_EQ(pushed.code(), Code::kOutcomeUnknown);
    EXPECT_NE(pushed.message().find(text), std::string::npos) << pushed.message();
    EXPECT_EQ(pulled.code(), code);
    EXPECT_EQ(barrier.code(), code);
    EXPECT_EQ(c.core->fatal().code(), code);
    for (auto& [id, conn] : c.network.conns) EXPECT_FALSE(conn.open);
    Status later;
    c.core->Barrier(c.now + 1, [&](Status s) { later = s; }, c.now);
    EXPECT_EQ(later.code(), code);
    c.Wait(1'000'000);  // and nothing is connected again
    for (auto& [id, conn] : c.network.conns) EXPECT_FALSE(conn.open);
  }
}

TEST(Ends, AHeartbeatRefusedAsRetiredIsTheEnd) {
  FakeCluster c;
  c.StartAll();
  c.Say(c.SchedulerConn(), wire::Refusal{0, Code::kRetired, "incarnation 7 was declared dead"});
  EXPECT_EQ(c.core->fatal().code(), Code::kRetired);
}

// Its scheduler was started again without its log. A scheduler that does not know a worker refuses the
// heartbeat, and then tells by the registration that it is another cluster's.
TEST(Ends, ASchedulerOfAnotherClusterIsTheEnd) {
  FakeCluster c;
  c.StartAll();
  Status barrier;
  c.core->Barrier(c.now + 600'000'000, [&](Status s) { barrier = s; }, c.now);
  c.Run();
  c.scheduler_answers = false;  // the test answers
  c.heard.clear();
  c.Say(c.SchedulerConn(), wire::Refusal{0, Code::kUnavailable, "this scheduler does not know the node"});
  EXPECT_TRUE(c.core->fatal().ok()) << "one that was replaced and does not know it yet says that too";
  c.Wait(2 * c.options.heartbeat_us);
  ASSERT_FALSE(c.heard.empty());
  const auto* again = std::get_if<wire::Register>(&c.heard.back());
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->cluster_id, "c") << "nobody had told it which, but it is in this one";
  EXPECT_EQ(again->wanted_rank, 65536) << "nobody may be replaced by it";
  c.Say(c.SchedulerConn(), wire::Refusal{0, Code::kProtocol, "this is cluster x, not c"});
  EXPECT_EQ(barrier.code(), Code::kProtocol);
  EXPECT_NE(barrier.message().find("this is cluster x, not c"), std::string::npos) << barrier.message();
}

TEST(Ends, ASchedulerOfTheSameNameThatDoesNotKnowThisWorkerIsTheEnd) {
  FakeCluster c;
  c.StartAll();
  c.scheduler_answers = false;
  c.Say(c.SchedulerConn(), wire::Refusal{0, Code::kInvalidArgument, "rank 65536 is outside 0..65535"});
  EXPECT_EQ(c.core->fatal().code(), Code::kInvalidArgument) << "it did not ask for that";
  FakeCluster d;
  d.StartAll();
  d.scheduler_answers = false;
  d.Say(d.SchedulerConn(), wire::Refusal{0, Code::kUnavailable, "this scheduler does not know the node"});
  d.Say(d.SchedulerConn(), wire::Refusal{0, Code::kInvalidArgument, "rank 65536 is outside 0..65535"});
  EXPECT_EQ(d.core->fatal().code(), Code::kProtocol);
  EXPECT_NE(d.core->fatal().message().find("was its log lost?"), std::string::npos);
}

TEST(Ends, ASchedulerThatGivesThisWorkerAnotherIncarnationIsTheEnd) {
  FakeCluster c;
  c.StartAll();
  c.state.term = Term{3};
  c.NewState();
  // The name of the cluster may be the same, and its terms begin anew.
  c.Say(c.SchedulerConn(), wire::Registered{c.options.uid, "c", Term{1}, Incarnation{7}, 0, 0});
  EXPECT_TRUE(c.core->fatal().ok());
  c.Say(c.SchedulerConn(), wire::Registered{c.options.uid, "c", Term{1}, Incarnation{2}, 0, 0});
  EXPECT_EQ(c.core->fatal().code(), Code::kProtocol);
  EXPECT_NE(c.core->fatal().message().find("was its log lost?"), std::string::npos);
}

TEST(Ends, ASchedulerThatKnowsThisWorkerAfterAllIsHeardOn) {
  FakeCluster c;
  c.StartAll();
  c.Say(c.SchedulerConn(), wire::Refusal{0, Code::kUnavailable, "this scheduler is a standby"});
  c.Wait(2 * c.options.heartbeat_us);
  EXPECT_TRUE(c.core->fatal().ok());
  EXPECT_TRUE(std::holds_alternative<wire::Heartbeat>(c.heard.back())) << "no longer a registration";
}

TEST(Heartbeats, TheSchedulerSaysHowOftenItWantsToHearOfAWorker) {
  FakeCluster c;
  c.StartAll();
  const auto heartbeats = [&] {
    c.heard.clear();
    for (int i = 0; i < 20; ++i) c.Wait(50'000);
    return std::count_if(c.heard.begin(), c.heard.end(), [](const auto& message) {
      return std::holds_alternative<wire::Heartbeat>(message);
    });
  };
  EXPECT_LE(heartbeats(), 2);
  c.Say(c.SchedulerConn(),
        wire::HeartbeatReply{c.state.term, c.state.version, 0, "", 0, /*heartbeat_ms=*/200});
  EXPECT_GE(heartbeats(), 4);
}

TEST(Cancel, EndsCallsAndClosesConnections) {
  FakeCluster c;
  c.StartAll();
  std::optional<Status> barrier;
  c.core->Barrier(c.now + 60'000'000, [&](Status s) { barrier = s; }, c.now);
  c.core->Cancel(c.now);
  ASSERT_TRUE(barrier);
  EXPECT_EQ(barrier->code(), Code::kCancelled);
  for (auto& [id, conn] : c.network.conns) EXPECT_FALSE(conn.open);
}

}  // namespace
}  // namespace cairn::client
