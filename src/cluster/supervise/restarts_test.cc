#include "cluster/supervise/restarts.h"

#include <gtest/gtest.h>

#include "cluster/supervise/supervise_words.h"

namespace cairn::cluster {
namespace {

TEST(Restarts, StartAgainWithinTheLimitAndSaySo) {
  ActionList actions;
  RunningNodes running(actions);
  Restarts restarts({.count = 1, .window_ms = 60'000}, running, actions);
  EXPECT_TRUE(restarts.Take(Server(1), kKilled, 1'000, "; others have copies"));
  const Actions done = actions.Take();
  EXPECT_EQ(Show(done), "start server 1");
  EXPECT_EQ(Said(done),
            "server 1 was killed by signal 9 (Killed): starting it again (1 of 1 within 1 min); others have "
            "copies\n");
  EXPECT_TRUE(running.Has(Server(1)));
  EXPECT_FALSE(restarts.Take(Server(1), kKilled, 2'000));
  EXPECT_TRUE(actions.Take().empty());
  EXPECT_EQ(restarts.UsedUp(), "1 restart within 1 min is used up (--max-restarts)");
  EXPECT_EQ(restarts.total(), 1u);
}

TEST(Restarts, OfAWholeJob) {
  ActionList actions;
  RunningNodes running(actions);
  const Restarts restarts({.count = 3, .window_ms = 0}, running, actions);
  EXPECT_EQ(restarts.UsedUp(), "3 restarts are used up (--max-restarts)");
}

}  // namespace
}  // namespace cairn::cluster
