// When a scheduler campaigns, keeps its lease, steps down and stands back, over an etcd in memory.
#include "scheduler/metastore/candidacy.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "scheduler/metastore/memory_kv.h"

namespace cairn::scheduler {
namespace {

constexpr int64_t kTtlUs = 6'000'000;

struct Contender final : Candidacy::Listener {
  Contender(MemoryEtcd& etcd, const std::string& name)
      : kv(etcd, [this](const std::string&) { return fate; }),
        election(kv, {.prefix = "/job", .address = name, .ttl_s = kTtlUs / 1'000'000}),
        candidacy(
            election,
            {.ttl_us = kTtlUs, .now_us = [this] { return now_us; }, .stopping = [this] { return stopping; }},
            *this, log) {}

  void OnStandby(const std::string& leader) override { events.push_back("standby " + leader); }
  void OnWon(int64_t) override { events.push_back("won"); }
  void OnEtcd(bool heard) override { events.push_back(heard ? "heard" : "not heard"); }
  void OnLost(Status why) override { events.push_back("lost: " + why.message()); }

  // The driver sleeps as long as it is told.
  int64_t Step(bool stands = true) {
    const int64_t pause_us = candidacy.Step(stands);
    if (pause_us != Candidacy::kNever) now_us += pause_us;
    return pause_us;
  }
  std::vector<std::string> TakeEvents() { return std::exchange(events, {}); }

  MemoryKv::Fate fate = MemoryKv::Fate::kFine;
  int64_t now_us = 1'000'000'000;
  bool stopping = false;
  std::vector<std::string> events, lines;
  const LogLine log = [this](const std::string& line) { lines.push_back(line); };
  MemoryKv kv;
  EtcdElection election;
  Candidacy candidacy;
};

struct CandidacyTest : ::testing::Test {
  void EndLeases() {
    for (int64_t lease : etcd.Leases()) etcd.EndLease(lease);
  }
  MemoryEtcd etcd;
  Contender a{etcd, "a:1"}, b{etcd, "b:1"};
};
using Events = std::vector<std::string>;

TEST_F(CandidacyTest, OneLeadsAndKeepsItsLeaseThreeTimesInItsTime) {
  EXPECT_EQ(a.Step(), 0);
  EXPECT_EQ(a.TakeEvents(), Events{"won"});
  EXPECT_EQ(a.Step(), kTtlUs / 3);
  EXPECT_EQ(a.Step(), kTtlUs / 3);
  EXPECT_TRUE(a.events.empty() && a.candidacy.leads());
  EXPECT_EQ(b.Step(), 300'000);
  EXPECT_EQ(b.TakeEvents(), Events{"standby a:1"});
  EXPECT_FALSE(b.candidacy.leads());
}

TEST_F(CandidacyTest, OneThatEtcdDoesNotHearForALeaseMayHaveBeenReplaced) {
  a.Step();
  a.Step();
  a.TakeEvents();
  a.fate = MemoryKv::Fate::kRequestLost;
  const int64_t since_us = a.now_us - kTtlUs / 3;  // when the last question was asked that was answered
  while (a.now_us - since_us < kTtlUs) {
    EXPECT_TRUE(a.events.empty()) << "after " << a.now_us - since_us << " us";
    EXPECT_EQ(a.Step(), 200'000);
  }
  a.Step();
  EXPECT_EQ(a.TakeEvents(), Events{"not heard"});
  a.Step();
  EXPECT_TRUE(a.events.empty()) << "said once";
  a.fate = MemoryKv::Fate::kFine;
  a.Step();
  EXPECT_EQ(a.TakeEvents(), Events{"heard"}) << "the lease was still there";
}

TEST_F(CandidacyTest, OneWhoseLeaseHasEndedHasLostForGood) {
  a.Step();
  EndLeases();
  EXPECT_EQ(a.Step(), Candidacy::kNever);
  ASSERT_EQ(a.events.size(), 2u);
  EXPECT_NE(a.events[1].find("lost: this scheduler no longer leads"), std::string::npos) << a.events[1];
  EXPECT_EQ(a.Step(), Candidacy::kNever);
  EXPECT_EQ(a.Step(false), Candidacy::kNever);
  EXPECT_EQ(a.events.size(), 2u);
  b.Step();
  EXPECT_EQ(b.events, Events{"won"});
}

TEST_F(CandidacyTest, OneThatStandsBackLetsTheNextLeadAtOnce) {
  a.Step();
  a.TakeEvents();
  EXPECT_EQ(a.Step(false), 300'000);
  EXPECT_FALSE(a.candidacy.leads());
  b.Step();
  EXPECT_EQ(b.TakeEvents(), Events{"won"});
  a.Step(false);
  EXPECT_TRUE(a.events.empty()) << "it is no candidate, and asks nobody";
  a.Step(true);
  EXPECT_EQ(a.TakeEvents(), Events{"standby b:1"});
}

// It was away when it stood back: the next reign begins as one that is heard.
TEST_F(CandidacyTest, AReignDoesNotInheritTheSilenceOfTheOneBefore) {
  a.Step();
  a.fate = MemoryKv::Fate::kRequestLost;
  for (int i = 0; i < 40; ++i) a.Step();
  EXPECT_EQ(a.events.back(), "not heard");
  a.Step(false);
  EndLeases();
  a.fate = MemoryKv::Fate::kFine;
  a.TakeEvents();
  a.Step(true);
  a.Step(true);
  EXPECT_EQ(a.TakeEvents(), Events{"won"});
}

TEST_F(CandidacyTest, ComplaintsComeEveryTenSecondsAndOnceAfterAnAnswer) {
  a.fate = MemoryKv::Fate::kRequestLost;
  const int64_t begun_us = a.now_us;
  while (a.now_us - begun_us < 9'900'000) a.Step();
  EXPECT_EQ(a.lines.size(), 1u);
  while (a.now_us - begun_us < 10'500'000) a.Step();
  EXPECT_EQ(a.lines.size(), 2u);
  a.fate = MemoryKv::Fate::kFine;
  a.Step();
  a.fate = MemoryKv::Fate::kRequestLost;
  a.Step();
  EXPECT_EQ(a.lines.size(), 3u) << "etcd has answered since";
}

TEST_F(CandidacyTest, OneThatEndsComplainsOfNothing) {
  a.Step();
  a.TakeEvents();
  a.fate = MemoryKv::Fate::kRequestLost;
  a.now_us += 2 * kTtlUs;
  a.stopping = true;
  a.Step();
  EXPECT_TRUE(a.events.empty() && a.lines.empty());
  a.fate = MemoryKv::Fate::kFine;
  a.candidacy.Resign();
  b.Step();
  EXPECT_EQ(b.events, Events{"won"});
}

}  // namespace
}  // namespace cairn::scheduler
