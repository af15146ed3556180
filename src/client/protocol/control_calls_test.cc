// Calls that the scheduler answers: many tables at once, barriers; and a link that fell back to TCP.
#include <gtest/gtest.h>

#include <algorithm>

#include "client/protocol/fake_cluster.h"

namespace cairn::client {
namespace {

TEST(Tables, ManyAreAskedForInOneMessage) {
  FakeCluster c;
  c.AddTable({.name = "there", .size = 8});
  c.StartAll();
  c.tables_answered = false;
  std::vector<std::string> made;
  c.core->CreateTables(
      {{.name = "b", .size = 4},
       {.name = "a", .kind = TableKind::kSparse, .dim = 2},
       {.name = "there", .size = 8}},
      c.now + 60'000'000,
      [&](Result<std::vector<wire::TableInfo>> infos) {
        ASSERT_TRUE(infos.ok()) << infos.status().ToString();
        for (const wire::TableInfo& info : *infos) made.push_back(info.spec.name);
      },
      c.now);
  c.Wait(1'100'000);
  const auto asked = std::count_if(c.heard.begin(), c.heard.end(), [](const wire::ControlMessage& message) {
    return std::holds_alternative<wire::CreateTables>(message);
  });
  EXPECT_EQ(asked, 2) << "repeated until answered";
  c.tables_answered = true;
  c.Wait(1'100'000);
  EXPECT_EQ(made, (std::vector<std::string>{"b", "a", "there"}));
}

TEST(Tables, OneOfManyThatIsGoneAgainIsNamed) {
  FakeCluster c;
  c.StartAll();
  c.tables_answered = false;
  Status ended;
  c.core->CreateTables(
      {{.name = "a", .size = 4}, {.name = "b", .size = 4}}, c.now + 60'000'000,
      [&](Result<std::vector<wire::TableInfo>> infos) { ended = infos.status(); }, c.now);
  c.Run();
  c.AddTable({.name = "a", .size = 4});
  c.AddTable({.name = "b", .size = 5});  // another one, made since
  c.NewState();
  c.Say(c.SchedulerConn(), wire::TableReply{1, Code::kOk, "", TableId{0}, c.state.version});
  c.Wait(200'000);
  EXPECT_EQ(ended.code(), Code::kNotFound);
  EXPECT_NE(ended.message().find("table \"b\" was dropped again"), std::string::npos) << ended.message();
}

// It counts as entered, so whoever comes late opens it: entered again, it must not be the one after it.
TEST(Barrier, OneThatTimedOutIsTheSameWhenItIsEnteredAgain) {
  FakeCluster c;
  c.StartAll();
  std::vector<Status> ends;
  const auto done = [&](Status s) { ends.push_back(s); };
  c.core->Barrier(c.now + 2'000'000, done, c.now);
  c.Wait(2'500'000);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].code(), Code::kDeadlineExceeded);
  c.core->Barrier(c.now + 2'000'000, done, c.now);
  c.Wait(2'500'000);
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends[1].code(), Code::kDeadlineExceeded) << "and again";
  c.core->Barrier(c.now + 60'000'000, done, c.now);
  c.Wait(1'100'000);
  EXPECT_EQ(c.barrier_count, 1u);
  c.barrier_open = 1;  // the others have come
  c.Wait(1'100'000);
  ASSERT_EQ(ends.size(), 3u);
  EXPECT_TRUE(ends[2].ok());
  c.core->Barrier(c.now + 60'000'000, done, c.now);
  c.Wait(1'100'000);
  EXPECT_EQ(c.barrier_count, 2u);
  EXPECT_EQ(ends.size(), 3u) << "the next one is another one";
}

TEST(Barrier, OneThatTimedOutAndIsOpenByNowLetsPassAtOnce) {
  FakeCluster c;
  c.StartAll();
  std::vector<Status> ends;
  const auto done = [&](Status s) { ends.push_back(s); };
  c.core->Barrier(c.now + 2'000'000, done, c.now);
  c.Wait(2'500'000);
  c.barrier_open = 1;
  c.Wait(1'100'000);
  c.barrier_open = 0;  // a restarted scheduler has not heard everybody yet
  c.Wait(1'100'000);
  c.core->Barrier(c.now + 60'000'000, done, c.now);
  c.Wait(200'000);
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_TRUE(ends[1].ok());
}

TEST(Barrier, CountsFromTheBaseAndKeepsTheHighestOpen) {
  FakeCluster c;
  c.barrier_base = c.barrier_open = 4;
  c.StartAll();
  std::vector<Status> ends;
  const auto done = [&](Status s) { ends.push_back(s); };
  c.core->Barrier(c.now + 60'000'000, done, c.now);
  c.Run();
  EXPECT_EQ(c.barrier_count, 5u);
  EXPECT_TRUE(ends.empty());
  c.barrier_open = 5;
  c.Wait(1'100'000);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_TRUE(ends[0].ok());
  c.core->Barrier(c.now + 60'000'000, done, c.now);
  c.barrier_open = 6;
  c.Wait(1'100'000);
  EXPECT_EQ(ends.size(), 2u);
  c.barrier_open = 0;  // a restarted scheduler has not heard everybody yet
  c.Wait(1'100'000);
  c.awaiting = "barrier 7: rank 1 has not come";
  c.core->Barrier(c.now + 2'000'000, done, c.now);
  c.Wait(2'500'000);
  ASSERT_EQ(ends.size(), 3u);
  EXPECT_EQ(ends[2].code(), Code::kDeadlineExceeded);
  EXPECT_NE(ends[2].message().find("rank 1 has not come"), std::string::npos);
}

// A server that was stopped while it was connected to: TCP answered first, since the kernel does.
TEST(SharedMemory, ALinkThatFellBackToTcpComesBackToIt) {
  FakeCluster c(1, 1);
  c.network.fell_back = true;
  c.StartAll();
  const auto connections = [&] {
    return std::count_if(c.network.conns.begin(), c.network.conns.end(),
                         [](const auto& conn) { return conn.second.to.port == 7000; });
  };
  EXPECT_EQ(connections(), 1);
  c.Wait(4'000'000);
  EXPECT_EQ(connections(), 1);
  c.Wait(2'000'000);
  EXPECT_EQ(connections(), 2) << "after five seconds";
  c.Wait(8'500'000);
  EXPECT_EQ(connections(), 2);
  c.network.fell_back = false;
  c.Wait(2'500'000);
  EXPECT_EQ(connections(), 3) << "after ten more";
  c.Wait(60'000'000);
  EXPECT_EQ(connections(), 3) << "that one has it";
  c.network.fell_back = true;
  c.Break({0, 0});
  c.Wait(1'000'000);
  EXPECT_EQ(connections(), 4);
  c.Wait(6'000'000);
  EXPECT_EQ(connections(), 5) << "after five seconds again";
}

TEST(Tables, OneThatWasMadeAnewWithAnotherShapeIsNotTheOneAskedFor) {
  const TableSpec asked{.name = "e", .kind = TableKind::kSparse, .dim = 4};
  const auto made = [&](auto change) {
    FakeCluster c;
    c.StartAll();
    c.tables_answered = false;
    Status ended;
    c.core->CreateTables(
        {asked}, c.now + 60'000'000,
        [&](Result<std::vector<wire::TableInfo>> infos) { ended = infos.status(); }, c.now);
    c.Run();
    TableSpec other = asked;
    change(other);
    c.AddTable(other);
    c.NewState();
    c.Say(c.SchedulerConn(), wire::TableReply{1, Code::kOk, "", TableId{0}, c.state.version});
    c.Wait(200'000);
    return ended.code();
  };
  EXPECT_EQ(made([](TableSpec&) {}), Code::kOk);
  EXPECT_EQ(made([](TableSpec& s) { s.kind = TableKind::kDense; }), Code::kNotFound);
  EXPECT_EQ(made([](TableSpec& s) { s.element = ElementType::kInt64; }), Code::kNotFound);
  EXPECT_EQ(made([](TableSpec& s) { s.mode = Mode::kSync; }), Code::kNotFound);
  EXPECT_EQ(made([](TableSpec& s) { s.dim = 5; }), Code::kNotFound);
}

TEST(Tables, EveryRequestSaysWhoAsksAndADropEndsWithItsAnswer) {
  FakeCluster c;
  c.AddTable({.name = "old", .size = 8});
  c.StartAll();
  c.tables_answered = false;
  std::vector<Status> ends;
  c.core->CreateTable(
      {.name = "a", .size = 4}, c.now + 60'000'000, [&](auto r) { ends.push_back(r.status()); }, c.now);
  c.core->CreateTables({{.name = "b", .size = 4}}, c.now + 60'000'000, [](auto) {}, c.now);
  c.core->DropTable("old", c.now + 60'000'000, [&](Status s) { ends.push_back(s); }, c.now);
  c.heard.clear();
  c.Wait(1'100'000);
  std::vector<Incarnation> asked;
  for (const wire::ControlMessage& message : c.heard) {
    if (const auto* m = std::get_if<wire::CreateTable>(&message)) asked.push_back(m->incarnation);
    if (const auto* m = std::get_if<wire::CreateTables>(&message)) asked.push_back(m->incarnation);
    if (const auto* m = std::get_if<wire::DropTable>(&message)) asked.push_back(m->incarnation);
  }
  EXPECT_GE(asked.size(), 3u);
  for (Incarnation incarnation : asked) EXPECT_EQ(incarnation, Incarnation{7});
  // The answer comes, and the table is gone again in the same state.
  c.Say(c.SchedulerConn(), wire::TableReply{1, Code::kOk, "", TableId{9}, c.state.version});
  c.Say(c.SchedulerConn(), wire::TableReply{3, Code::kNotFound, "no such table", {}, {}});
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends[0].code(), Code::kNotFound);
  EXPECT_NE(ends[0].message().find("dropped again at once"), std::string::npos) << ends[0].message();
  EXPECT_EQ(ends[1], Status(Code::kNotFound, "no such table"));
}

TEST(Barrier, OneThatIsTakenUpAgainEndsBeforeTheNext) {
  FakeCluster c;
  c.StartAll();
  std::string order;
  const auto named = [&](char name) {
    return [&order, name](Status s) {
      if (s.ok()) order += name;
    };
  };
  c.core->Barrier(c.now + 1'000'000, named('x'), c.now);
  c.core->Barrier(c.now + 60'000'000, named('2'), c.now);
  c.Wait(1'500'000);
  c.core->Barrier(c.now + 60'000'000, named('1'), c.now);
  c.barrier_open = 2;
  c.Wait(1'100'000);
  EXPECT_EQ(order, "12");
}

}  // namespace
}  // namespace cairn::client
