// When a connection that fell back to TCP is given up for one through shared memory.
#include "transport/link/shared_memory_retry.h"

#include <gtest/gtest.h>

namespace cairn::transport {
namespace {

constexpr bool kFellBack = true, kIdle = true;
constexpr int64_t kSecond = 1'000'000;

TEST(SharedMemoryRetry, OneThroughMemoryIsKept) {
  SharedMemoryRetry retry;
  EXPECT_FALSE(retry.Due(kIdle, 1000 * kSecond)) << "there is none";
  retry.OnReady(!kFellBack, kSecond);
  EXPECT_FALSE(retry.Due(kIdle, 1000 * kSecond));
}

TEST(SharedMemoryRetry, OneThatIsBusyIsGivenSomeMoreTime) {
  SharedMemoryRetry retry;
  retry.OnReady(kFellBack, kSecond);
  EXPECT_FALSE(retry.Due(kIdle, 6 * kSecond - 1));
  EXPECT_TRUE(retry.Due(kIdle, 6 * kSecond));
  EXPECT_FALSE(retry.Due(!kIdle, 11 * kSecond - 1));
  EXPECT_TRUE(retry.Due(!kIdle, 11 * kSecond));
}

TEST(SharedMemoryRetry, OneThatIsGoneIsNotGivenUp) {
  SharedMemoryRetry retry;
  retry.OnReady(kFellBack, kSecond);
  retry.OnGone();
  EXPECT_FALSE(retry.Due(kIdle, 1000 * kSecond));
}

TEST(SharedMemoryRetry, EachTimeItTakesTwiceAsLongUpToTenMinutesUntilMemoryIsThere) {
  SharedMemoryRetry retry;
  int64_t now = kSecond;
  const auto waits_s = [&] {
    retry.OnReady(kFellBack, now);
    int64_t waited = 0;
    while (!retry.Due(kIdle, now + waited * kSecond)) ++waited;
    now += waited * kSecond;
    return waited;
  };
  for (const int64_t expected : {5, 10, 20, 40, 80, 160, 320, 600, 600}) EXPECT_EQ(waits_s(), expected);
  retry.OnReady(!kFellBack, now);
  EXPECT_EQ(waits_s(), 5);
}

}  // namespace
}  // namespace cairn::transport
