// Who has been heard when (hearing.h), and words that count only when they are repeated: the classes alone.
#include "scheduler/core/hearing.h"

#include <gtest/gtest.h>

#include "scheduler/rules/repeated_word.h"

namespace cairn::scheduler {
namespace {

constexpr int64_t kSec = 1'000'000;
constexpr auto kAway = Hearing::Where::kElsewhere;

// A heartbeat of 1 s, a detection time of 5 s; lost after 60 s. Both nodes were heard at 0.
struct TwoHeard : ::testing::Test {
  Hearing h{{kSec, 5 * kSec, 60 * kSec}, 0};
  const Incarnation a{1}, b{2};
  void SetUp() override {
    h.Hear(a, kAway, 0);
    h.Hear(b, kAway, 0);
  }
  bool IsolatedAt(int64_t now_us) {
    h.Look(now_us, [] { return false; });
    return h.isolated();
  }
};

TEST_F(TwoHeard, ASilenceOfAllThatNoLookHasSeenCountsForNobody) {
  h.Hear(a, kAway, 4'900'000);
  EXPECT_FALSE(h.Overdue(b, 5'100'000)) << "it was shared";
  EXPECT_FALSE(h.Overdue(b, 9'899'999));
  EXPECT_TRUE(h.Overdue(b, 9'900'000)) << "a detection time after the first was heard again";
}

// A network that was down for seconds answers for one machine at once and for another one seconds later,
// however short the detection time is.
TEST(ShortDetection, AfterASilenceOfAllEverybodyGetsWhatANetworkNeeds) {
  const Incarnation a{1}, b{2};
  Hearing h{{kSec * 3 / 10, kSec * 3 / 2, 60 * kSec}, 0};
  h.Hear(a, kAway, 0);
  h.Hear(b, kAway, 0);
  h.Look(4 * kSec, [] { return false; });
  h.Hear(a, kAway, 4 * kSec);
  EXPECT_FALSE(h.Overdue(b, 9 * kSec - 1));
  EXPECT_TRUE(h.Overdue(b, 9 * kSec));
  h.Hear(b, kAway, 9 * kSec);
  EXPECT_FALSE(h.Overdue(a, 9 * kSec + kSec * 3 / 2 - 1)) << "another silence";
}

TEST(ShortDetection, AShortSilenceOfAllMakesNobodysDeathLate) {
  const Incarnation a{1}, b{2};
  Hearing h{{kSec * 3 / 10, kSec * 3 / 2, 60 * kSec}, 0};
  h.Hear(a, kAway, 0);
  h.Hear(b, kAway, 0);
  h.Hear(a, kAway, kSec * 7 / 10);
  EXPECT_TRUE(h.Overdue(b, kSec * 22 / 10));
}

TEST_F(TwoHeard, AGapOfLessThanTwoHeartbeatsIsNoSharedSilence) {
  h.Hear(a, kAway, 1'999'999);
  EXPECT_FALSE(h.Overdue(b, 4'999'999));
  EXPECT_TRUE(h.Overdue(b, 5 * kSec));
}

TEST_F(TwoHeard, TheSchedulerIsIsolatedFromTwoHeartbeatsOfSilenceOn) {
  EXPECT_FALSE(IsolatedAt(1'999'999));
  EXPECT_EQ(h.IsolatedUs(1'999'999), 0);
  EXPECT_TRUE(IsolatedAt(2 * kSec));
  EXPECT_EQ(h.IsolatedUs(3 * kSec), 3 * kSec);
  EXPECT_TRUE(IsolatedAt(60 * kSec - 1));
  EXPECT_FALSE(IsolatedAt(60 * kSec)) << "in the end it counts, whoever shares it";
  EXPECT_TRUE(h.Overdue(a, 60 * kSec));
}

TEST_F(TwoHeard, WaitingForTheStoreIsNoSilenceOfAll) {
  h.Excuse(4 * kSec);
  EXPECT_FALSE(IsolatedAt(5'900'000));
  EXPECT_TRUE(IsolatedAt(6 * kSec));
}

TEST_F(TwoHeard, APauseEndsAnIsolationAndEverybodyIsAsIfJustHeard) {
  ASSERT_TRUE(IsolatedAt(59 * kSec));
  h.ExcuseAll(59 * kSec);
  EXPECT_FALSE(h.isolated());
  EXPECT_FALSE(IsolatedAt(60 * kSec)) << "one second of silence";
  EXPECT_EQ(h.SilenceUs(a, 60 * kSec), kSec);
  EXPECT_TRUE(h.Lately(a, 60 * kSec));
  EXPECT_FALSE(h.Lost(a, 70 * kSec));
  h.Hear(b, kAway, 60 * kSec);
  EXPECT_FALSE(h.Overdue(a, 64 * kSec - 1));
  EXPECT_TRUE(h.Overdue(a, 64 * kSec));
}

TEST_F(TwoHeard, LatelyIsHalfOfTheDetectionTimeAndLostIsLostAfter) {
  EXPECT_TRUE(h.Lately(a, 2'500'000));
  EXPECT_FALSE(h.Lately(a, 2'500'001));
  EXPECT_FALSE(h.Lost(a, 60 * kSec - 1));
  EXPECT_TRUE(h.Lost(a, 60 * kSec));
}

TEST_F(TwoHeard, OneThatIsExpectedHasADetectionTimeAndOneThatIsForgottenIsNobody) {
  const Incarnation fresh{3};
  h.Expect(fresh, 4 * kSec);
  h.Hear(a, kAway, 4 * kSec);
  EXPECT_EQ(h.SilenceUs(fresh, 5 * kSec), kSec);
  EXPECT_FALSE(h.Overdue(fresh, 9 * kSec - 1));
  EXPECT_TRUE(h.Overdue(fresh, 9 * kSec));
  h.MarkDead(fresh);
  EXPECT_TRUE(h.KnownDead(fresh));
  h.Forget(fresh);
  EXPECT_FALSE(h.KnownDead(fresh));
  EXPECT_FALSE(h.Overdue(fresh, 100 * kSec));
  EXPECT_FALSE(h.Lost(fresh, 100 * kSec));
  EXPECT_FALSE(h.Lately(fresh, 5 * kSec));
}

TEST_F(TwoHeard, OneThatWasSaidToHaveEndedAndIsHeardAgainLives) {
  h.MarkDead(a);
  h.Hear(a, kAway, kSec);
  EXPECT_FALSE(h.KnownDead(a));
  EXPECT_FALSE(h.Overdue(a, 2 * kSec));
  EXPECT_TRUE(h.Lately(a, 2 * kSec));
}

TEST(RepeatedWords, CountAfterHalfAHeartbeatWithoutABreak) {
  RepeatedWord word;
  word.OnReport(true, 10 * kSec, kSec);
  EXPECT_FALSE(word.counts());
  word.OnReport(true, 10 * kSec + 499'999, kSec);
  EXPECT_FALSE(word.counts());
  word.OnReport(true, 10 * kSec + 500'000, kSec);
  EXPECT_TRUE(word.counts());
  word.OnReport(false, 11 * kSec, kSec);
  EXPECT_FALSE(word.counts()) << "it is no longer said";
  word.OnReport(true, 11 * kSec + 300'000, kSec);
  EXPECT_FALSE(word.counts()) << "it begins anew";
  word.OnReport(true, 11 * kSec + 800'000, kSec);
  EXPECT_TRUE(word.counts());
}

TEST(RepeatedWords, BeginAnewAfterASilence) {
  RepeatedWord word;
  word.OnReport(true, 10 * kSec, kSec);
  word.OnReport(true, 12 * kSec, kSec);
  EXPECT_TRUE(word.counts()) << "two heartbeats are no silence yet";
  word.OnReport(true, 14 * kSec + 1, kSec);
  EXPECT_FALSE(word.counts());
}

}  // namespace
}  // namespace cairn::scheduler
