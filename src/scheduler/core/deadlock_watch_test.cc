// Who waits for whom, and when that is a deadlock.
#include "scheduler/core/deadlock_watch.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/core/fake_cluster.h"

namespace cairn::scheduler {
namespace {

constexpr int64_t kOneSecondUs = 1'000'000;

// Workers of incarnation 100 + rank, which report every second.
class Watched {
 public:
  explicit Watched(uint32_t workers, int64_t after_us = 10 * kOneSecondUs)
      : watch_(after_us, 3 * kOneSecondUs) {
    for (uint32_t rank = 0; rank < workers; ++rank) {
      workers_.push_back({Incarnation{100 + rank}, Rank{rank}, 0});
      said_.emplace_back();
    }
  }

  void InBarrier(uint32_t rank, uint64_t barrier = 1) {
    workers_[rank].barrier_count = barrier;
    Says(rank, {.barrier = barrier});
  }
  void WaitsFor(uint32_t rank, std::vector<uint32_t> ranks,
                const std::string& what = "round 7 of table \"w\"") {
    Says(rank, {.barrier = 0, .ranks = std::move(ranks), .what = what});
  }
  void Says(uint32_t rank, wire::Blocked report) {
    report.incarnation = workers_[rank].incarnation;
    report.serial = ++serial_;
    said_[rank] = report;
  }
  std::optional<wire::Blocked> GoesOn(uint32_t rank) { return std::exchange(said_[rank], std::nullopt); }
  void SaysAgain(uint32_t rank, const std::optional<wire::Blocked>& report) { said_[rank] = report; }
  void Dies(uint32_t rank) {
    GoesOn(rank);
    std::erase_if(workers_, [&](const auto& worker) { return worker.rank.value == rank; });
  }

  // What is found within so many seconds.
  std::string Find(int seconds) {
    std::string found;
    for (int i = 0; i < seconds && found.empty(); ++i, now_us_ += kOneSecondUs) {
      for (const auto& report : said_)
        if (report) watch_.Take(*report, now_us_);
      found = watch_.Look(workers_, now_us_);
    }
    return found;
  }
  bool Told(uint32_t rank) const { return said_[rank] && watch_.Verdict(*said_[rank]).has_value(); }

 private:
  DeadlockWatch watch_;
  std::vector<DeadlockWatch::Worker> workers_;
  std::vector<std::optional<wire::Blocked>> said_;
  uint64_t serial_ = 0;
  int64_t now_us_ = 0;
};

TEST(DeadlockWatch, ABarrierAgainstARoundIsFoundAfterItsTimeAndBothAreTold) {
  Watched w(2);
  w.InBarrier(0);
  w.WaitsFor(1, {0});
  EXPECT_EQ(w.Find(10), "") << "not before its time";
  EXPECT_FALSE(w.Told(0) || w.Told(1));
  EXPECT_EQ(
      w.Find(2),
      "rank 0 is in a barrier, rank 1 waits for round 7 of table \"w\": they wait for each other, and have "
      "for 10 s (CAIRN_DEADLOCK_AFTER_MS). Make the same calls in the same order on all workers");
  EXPECT_TRUE(w.Told(0) && w.Told(1));
  EXPECT_EQ(w.Find(20), "") << "once";
}

TEST(DeadlockWatch, WhateverChangesBeginsTheTimeAgain) {
  Watched w(2);
  w.InBarrier(0);
  w.WaitsFor(1, {0});
  EXPECT_EQ(w.Find(8), "");
  w.WaitsFor(1, {0}, "round 8 of table \"w\"");
  EXPECT_EQ(w.Find(9), "");
  w.GoesOn(1);
  EXPECT_EQ(w.Find(5), "");
  w.WaitsFor(1, {0});
  EXPECT_EQ(w.Find(10), "");
  EXPECT_NE(w.Find(2), "");
}

TEST(DeadlockWatch, WhoComputesInBetweenBeginsTheTimeAgainThoughItWaitsForTheSameThen) {
  Watched w(2);
  w.InBarrier(0);
  w.WaitsFor(1, {0});
  EXPECT_EQ(w.Find(5), "");
  const auto report = w.GoesOn(1);  // its call is still under way
  EXPECT_EQ(w.Find(8), "");
  w.SaysAgain(1, report);
  EXPECT_EQ(w.Find(10), "");
  EXPECT_NE(w.Find(2), "");
}

TEST(DeadlockWatch, WhoMayStillComeIsNoDeadlock) {
  {
    Watched w(2);  // rank 1 computes: it may enter the barrier
    w.InBarrier(0);
    EXPECT_EQ(w.Find(30), "");
  }
  {
    Watched w(3);  // the round waits for rank 2 only, which computes
    w.InBarrier(0);
    w.WaitsFor(1, {2});
    EXPECT_EQ(w.Find(30), "");
  }
  {
    Watched w(2);  // an earlier barrier, which rank 1 has entered too
    w.InBarrier(0, 1);
    w.InBarrier(1, 1);
    EXPECT_EQ(w.Find(30), "");
  }
  {
    Watched w(2);  // rank 0 has a round under way besides, which a worker that computes may end
    w.Says(0, {.barrier = 1, .ranks = {5}, .what = "round 3 of table \"v\""});
    w.WaitsFor(1, {0});
    EXPECT_EQ(w.Find(30), "");
  }
}

TEST(DeadlockWatch, WhoWaitsForThoseIsToldTooAndADeathEndsIt) {
  Watched w(4);
  w.InBarrier(0);
  w.WaitsFor(1, {0, 3});
  w.WaitsFor(2, {1}, "a pull of table \"v\"");
  EXPECT_NE(w.Find(12), "") << "rank 3 computes, but 0 and 1 wait for each other whatever it does";
  EXPECT_TRUE(w.Told(0) && w.Told(1) && w.Told(2));
  Watched other(2);
  other.InBarrier(0);
  other.WaitsFor(1, {0});
  EXPECT_EQ(other.Find(8), "");
  other.Dies(0);
  EXPECT_EQ(other.Find(30), "");
}

TEST(DeadlockWatch, RoundsOfTwoTablesAgainstEachOther) {
  Watched w(2);
  w.WaitsFor(0, {1}, "round 0 of table \"optimizer-1/0\"");
  w.WaitsFor(1, {0}, "round 1 of table \"optimizer-0/0\"");
  EXPECT_TRUE(w.Find(12).starts_with(
      "rank 0 waits for round 0 of table \"optimizer-1/0\", rank 1 waits for round 1"));
}

TEST(DeadlockWatch, NeverAndNotTooSoon) {
  Watched never(2, 0);
  never.InBarrier(0);
  never.WaitsFor(1, {0});
  EXPECT_EQ(never.Find(1000), "");
  Watched soon(2, 1);
  soon.InBarrier(0);
  soon.WaitsFor(1, {0});
  EXPECT_EQ(soon.Find(5), "") << "what servers say of who is missing is up to 3 s old";
  EXPECT_NE(soon.Find(2), "");
}

// The scheduler's side of it: who is told, on which connection, until it has heard.
TEST(DeadlockWatch, WorkersThatReportItAreToldUntilTheyHaveHeard) {
  SchedulerOptions options = FakeCluster::Options(1, 2);
  options.deadlock_after_us = 20 * kOneSecondUs;
  FakeCluster c(options);
  c.Start();
  FakeNode server = c.Server(7000), first = c.Worker(1), second = c.Worker(2);
  ASSERT_EQ(c.state().phase, wire::Phase::kRunning);
  first.beat.barrier_count = 1;
  const wire::Blocked in_barrier{first.incarnation, 11, 1, {}, ""};
  const wire::Blocked in_round{second.incarnation, 13, 0, {0}, "round 5 of table \"w\""};
  const auto report = [&](int seconds) {
    for (int i = 0; i < seconds; ++i) {
      c.Advance(kOneSecondUs, {&server, &first, &second});
      c.Tell(first.conn, in_barrier);
      c.Tell(second.conn, in_round);
    }
  };
  report(19);
  EXPECT_FALSE(c.Last<wire::Deadlock>(first.conn) || c.Last<wire::Deadlock>(second.conn));
  report(6);
  const std::string text = "rank 0 is in a barrier, rank 1 waits for round 5 of table \"w\"";
  for (const auto& [node, serial] : {std::pair(&first, 11u), std::pair(&second, 13u)}) {
    const auto told = c.Last<wire::Deadlock>(node->conn);
    ASSERT_TRUE(told);
    EXPECT_EQ(told->serial, serial);
    EXPECT_TRUE(told->text.starts_with(text)) << told->text;
  }
  EXPECT_EQ(c.CountLogged(text), 1u);
  c.network.sent.clear();
  report(1);
  EXPECT_TRUE(c.Last<wire::Deadlock>(first.conn)) << "it reports the same, so it has not heard";
  // Not what others say in its name.
  c.network.sent.clear();
  c.Tell(second.conn, in_barrier);
  EXPECT_FALSE(c.Last<wire::Deadlock>(second.conn));
}

TEST(DeadlockWatch, OfManyAFewOfEachKindAreNamed) {
  Watched w(6);
  for (uint32_t rank = 0; rank < 5; ++rank) w.InBarrier(rank);
  w.WaitsFor(5, {0});
  const std::string found = w.Find(15);
  EXPECT_TRUE(
      found.starts_with("rank 0 is in a barrier, rank 1 is in a barrier, rank 5 waits for round 7 of "
                        "table \"w\" and 3 more wait too: they wait for each other"))
      << found;
}

// One that is in no view yet is in nobody's barriers and rounds.
TEST(DeadlockWatch, WhoWaitsForAViewTakesNoPart) {
  SchedulerOptions options = FakeCluster::Options(1, 1);
  options.deadlock_after_us = 20 * kOneSecondUs;
  FakeCluster c(options);
  c.Start();
  FakeNode server = c.Server(7000), first = c.Worker(1);
  c.Beat(server);
  FakeNode joiner = c.Worker(2);
  first.beat.barrier_count = 1;
  for (int i = 0; i < 30 * 10; ++i) {
    c.now_us += kOneSecondUs / 10;
    c.Beat(server, /*takes_state=*/false), c.Beat(first), c.Beat(joiner);
    c.Tell(first.conn, wire::Blocked{first.incarnation, 11, 1, {}, ""});
    c.Tell(joiner.conn, wire::Blocked{joiner.incarnation, 13, 0, {0}, "round 5 of table \"w\""});
    c.scheduler->OnTick(c.now_us);
  }
  ASSERT_NE(c.state().pending_view, ViewNumber(0));
  EXPECT_FALSE(c.Last<wire::Deadlock>(first.conn));
}

}  // namespace
}  // namespace cairn::scheduler
