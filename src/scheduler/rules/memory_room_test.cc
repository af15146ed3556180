// Tables that the servers have no memory for are refused before they are made (rule 8).
#include "scheduler/rules/memory_room.h"

#include "scheduler/core/fake_cluster.h"

namespace cairn::scheduler {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

TableSpec Dense(uint64_t mib_of_values, OptimizerKind optimizer = OptimizerKind::kSum,
                Mode mode = Mode::kAsync) {
  return {.name = "big", .mode = mode, .optimizer = optimizer, .size = mib_of_values * kMiB / 4};
}

struct MemoryRoom : ::testing::Test {
  FakeCluster c{FakeCluster::Options(2, 1)};
  FakeNode s0, s1, w;
  uint64_t requests = 0;

  void Begin(uint32_t replicas) {
    c.options.replicas = replicas;
    c.Start();
    s0 = c.Server(9000), s1 = c.Server(9001), w = c.Worker(1);
    for (FakeNode* node : {&s0, &s1, &w}) c.Beat(*node);
  }
  void Says(FakeNode& server, uint64_t left, uint64_t group, MemoryKind kind, uint64_t dense = 0) {
    server.beat.stats.memory = {kind, left, group};
    server.beat.stats.dense_bytes = dense;
    c.Beat(server);
  }
  wire::TableReply Create(const TableSpec& spec) {
    c.Tell(w.conn, wire::CreateTable{++requests, w.incarnation, spec});
    c.Beat(s0), c.Beat(s1);
    return c.Last<wire::TableReply>(w.conn).value();
  }
};

TEST_F(MemoryRoom, ArraysOfATable) {
  EXPECT_EQ(DenseArrays(Dense(1)), 1u);
  EXPECT_EQ(DenseArrays(Dense(1, OptimizerKind::kAdam)), 3u);
  EXPECT_EQ(DenseArrays(Dense(1, OptimizerKind::kAdam, Mode::kSync)), 4u);
  EXPECT_EQ(DenseBytes(Dense(10, OptimizerKind::kAdam)), 30 * kMiB);
  TableSpec rows = Dense(1);
  rows.kind = TableKind::kSparse;
  EXPECT_EQ(DenseBytes(rows), 0u);
}

TEST_F(MemoryRoom, WhatDoesNotFitIsRefusedWithWhatThereIs) {
  Begin(1);
  Says(s0, 100 * kMiB, 1, MemoryKind::kAddressSpace);
  Says(s1, 400 * kMiB, 2, MemoryKind::kMachine);
  // Half of three arrays of 100 MiB on each server.
  const wire::TableReply refused = Create(Dense(100, OptimizerKind::kAdam));
  EXPECT_EQ(refused.code, Code::kResourceExhausted);
  EXPECT_EQ(
      refused.text,
      "table \"big\" needs 150.0 MiB on server 0, and there is 100.0 MiB left (ulimit -v): a copy of the "
      "table has 300.0 MiB (26214400 elements of 4 bytes, 2 arrays of optimizer state), and each partition "
      "has 1 owner. Use more servers, servers with more memory, fewer copies (--replicas), or a smaller "
      "table");
  EXPECT_TRUE(c.state().tables.empty());
  EXPECT_TRUE(c.Logged("table \"big\" needs 150.0 MiB on server 0"));
  EXPECT_EQ(Create(Dense(60, OptimizerKind::kAdam)).code, Code::kOk);
}

TEST_F(MemoryRoom, EveryCopyCounts) {
  Begin(2);
  Says(s0, 100 * kMiB, 1, MemoryKind::kAddressSpace);
  Says(s1, 100 * kMiB, 2, MemoryKind::kAddressSpace);
  EXPECT_EQ(Create(Dense(101)).code, Code::kResourceExhausted);
  EXPECT_EQ(Create(Dense(99)).code, Code::kOk);
}

TEST_F(MemoryRoom, ServersOfOneMachineShareWhatItHas) {
  Begin(1);
  Says(s0, 100 * kMiB, 7, MemoryKind::kMachine);
  Says(s1, 90 * kMiB, 7, MemoryKind::kMachine);
  const wire::TableReply refused = Create(Dense(95));
  EXPECT_EQ(refused.code, Code::kResourceExhausted);
  EXPECT_NE(
      refused.text.find("needs 95.0 MiB on servers 0, 1, and there is together 90.0 MiB left (the machine's "
                        "memory)"),
      std::string::npos)
      << refused.text;
  EXPECT_EQ(Create(Dense(85)).code, Code::kOk);
}

// State and sums are taken by the first step: until then they are only promised.
TEST_F(MemoryRoom, WhatOtherTablesHaveBeenPromisedIsNotThere) {
  Begin(1);
  Says(s0, 100 * kMiB, 1, MemoryKind::kControlGroup);
  Says(s1, 100 * kMiB, 2, MemoryKind::kControlGroup);
  EXPECT_EQ(Create(Dense(60, OptimizerKind::kAdam)).code, Code::kOk);  // 90 MiB on each
  // Its values lie there now, two thirds are to come.
  Says(s0, 70 * kMiB, 1, MemoryKind::kControlGroup, 30 * kMiB);
  Says(s1, 70 * kMiB, 2, MemoryKind::kControlGroup, 30 * kMiB);
  TableSpec other = Dense(30);
  other.name = "other";
  const wire::TableReply refused = Create(other);
  EXPECT_EQ(refused.code, Code::kResourceExhausted);
  EXPECT_NE(
      refused.text.find("there is 10.0 MiB left (the control group's limit; 60.0 MiB more is left, but other "
                        "tables will take it)"),
      std::string::npos)
      << refused.text;
  other.size /= 2;
  EXPECT_EQ(Create(other).code, Code::kOk);
}

TEST_F(MemoryRoom, WhatServersOfOneMachineHaveTakenIsCountedTogether) {
  Begin(1);
  Says(s0, 200 * kMiB, 7, MemoryKind::kMachine);
  Says(s1, 200 * kMiB, 7, MemoryKind::kMachine);
  EXPECT_EQ(Create(Dense(60, OptimizerKind::kAdam)).code, Code::kOk);
  // 30 MiB of values lie on each of them, 120 MiB of state are to come.
  Says(s0, 140 * kMiB, 7, MemoryKind::kMachine, 30 * kMiB);
  Says(s1, 140 * kMiB, 7, MemoryKind::kMachine, 30 * kMiB);
  TableSpec other = Dense(25);
  other.name = "other";
  EXPECT_EQ(Create(other).code, Code::kResourceExhausted);
  other.size = 15 * kMiB / 4;
  EXPECT_EQ(Create(other).code, Code::kOk);
}

TEST_F(MemoryRoom, TablesThatAreMadeTogetherHaveToFitTogether) {
  Begin(1);
  Says(s0, 50 * kMiB, 1, MemoryKind::kMachine);
  Says(s1, 50 * kMiB, 2, MemoryKind::kMachine);
  TableSpec other = Dense(60);
  other.name = "other";
  c.Tell(w.conn, wire::CreateTables{++requests, w.incarnation, {Dense(60), other}});
  const auto refused = c.Last<wire::TableReply>(w.conn);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->code, Code::kResourceExhausted);
  EXPECT_NE(refused->text.find("table \"other\" needs 30.0 MiB on server 0, and there is 20.0 MiB left"),
            std::string::npos)
      << refused->text;
  EXPECT_TRUE(c.state().tables.empty()) << "all of them or none";
}

TEST_F(MemoryRoom, NobodyIsRefusedForWhatIsNotKnown) {
  Begin(1);
  EXPECT_EQ(Create(Dense(100, OptimizerKind::kAdam)).code, Code::kOk);
  Says(s0, 1, 1, MemoryKind::kMachine);
  TableSpec rows{.name = "rows", .kind = TableKind::kSparse, .dim = 8};
  EXPECT_EQ(Create(rows).code, Code::kOk);
}

TEST_F(MemoryRoom, AServerThatIsLostWithoutMemoryIsSaidToBe) {
  Begin(1);
  Says(s0, 5 * kMiB, 1, MemoryKind::kControlGroup);
  c.Advance(120'000'000, {&s1, &w});
  EXPECT_EQ(c.state().phase, wire::Phase::kFailed);
  EXPECT_NE(
      c.state().failure.find("and had only 5.0 MiB of memory left in its last report (the control group's "
                             "limit), so it has probably run out of it"),
      std::string::npos)
      << c.state().failure;
  EXPECT_NE(c.state().failure.find("more servers, servers with more memory"), std::string::npos);
  EXPECT_EQ(c.state().failure.find("--replicas"), std::string::npos) << "more copies would need more memory";
}

TEST_F(MemoryRoom, NothingIsCopiedToAServerWithoutMemory) {
  Begin(2);
  FakeNode s2 = c.Server(9002);
  c.bytes.assign(c.state().slots.size(), 100 * kMiB);
  Says(s2, 50 * kMiB, 3, MemoryKind::kMachine);
  c.AdvanceDone(3'000'000, {&s0, &s1, &s2}, {&w});
  const auto owned = [&] {
    return std::count_if(c.state().slots.begin(), c.state().slots.end(), [](const wire::SlotOwner& owner) {
      return owner.server == 2 || owner.FindBackup(2) != nullptr;
    });
  };
  EXPECT_EQ(owned(), 0);
  Says(s2, 300 * kMiB, 3, MemoryKind::kMachine);
  c.AdvanceDone(3'000'000, {&s0, &s1, &s2}, {&w});
  EXPECT_EQ(owned(), 0) << "four come at a time";
  EXPECT_EQ(
      c.CountLogged("server 2 has only 50.0 MiB of memory left (the machine's memory): no partitions are "
                    "copied to it"),
      1u);
  Says(s2, 5000 * kMiB, 3, MemoryKind::kMachine);
  c.AdvanceDone(10'000'000, {&s0, &s1, &s2}, {&w});
  EXPECT_GT(owned(), 0);
}

TEST_F(MemoryRoom, ElementsOfEightBytesTakeEight) {
  TableSpec integers = Dense(10);
  integers.element = ElementType::kInt64;
  EXPECT_EQ(DenseBytes(integers), 20 * kMiB);
}

TEST_F(MemoryRoom, LittleIsLittleBesideWhatTheTablesTake) {
  EXPECT_EQ(ProbablyOutOfMemory({MemoryKind::kMachine, 40 * kMiB, 1}, 100 * kMiB), "");
  EXPECT_NE(ProbablyOutOfMemory({MemoryKind::kMachine, 40 * kMiB, 1}, 1024 * kMiB), "");
  EXPECT_EQ(ProbablyOutOfMemory({MemoryKind::kMachine, 64 * kMiB, 1}, 1024 * kMiB), "");
  EXPECT_NE(ProbablyOutOfMemory({MemoryKind::kMachine, 31 * kMiB, 1}, 0), "");
  EXPECT_EQ(ProbablyOutOfMemory({MemoryKind::kMachine, 32 * kMiB, 1}, 0), "");
}

TEST_F(MemoryRoom, OnlyServersThatAreKnownToHaveTooLittleAreWithoutRoom) {
  const std::vector<ServerMemory> servers = {
      {0, {}, 0}, {1, {MemoryKind::kMachine, 99, 1}, 0}, {2, {MemoryKind::kMachine, 100, 1}, 0}};
  EXPECT_EQ(WithoutRoom(servers, 100), std::vector<uint32_t>{1});
}

}  // namespace
}  // namespace cairn::scheduler
