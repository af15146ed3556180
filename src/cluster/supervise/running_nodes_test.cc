#include "cluster/supervise/running_nodes.h"

#include <gtest/gtest.h>

#include "cluster/supervise/supervise_words.h"

namespace cairn::cluster {
namespace {

using Kind = SuperviseAction::Kind;

TEST(RunningNodes, KnowsWhoRuns) {
  ActionList actions;
  RunningNodes running(actions);
  EXPECT_TRUE(running.none());
  running.Start(Worker(3));
  running.Start(Worker(1));
  running.Start(kScheduler);
  EXPECT_EQ(Show(actions.Take()), "start worker 3; start worker 1; start scheduler");
  EXPECT_EQ(running.Indices(wire::Role::kWorker), (std::set<uint32_t>{1, 3}));
  EXPECT_EQ(running.Count(wire::Role::kServer), 0u);
  EXPECT_TRUE(running.Remove(Worker(3)));
  EXPECT_FALSE(running.Remove(Worker(3)));
  EXPECT_EQ(running.Count(wire::Role::kWorker), 1u);
}

TEST(RunningNodes, TellsThoseThatAreMeant) {
  ActionList actions;
  RunningNodes running(actions);
  for (const NodeName& node : {kScheduler, Server(0), Worker(0), Worker(1)}) running.Start(node);
  actions.Take();
  running.Tell(Kind::kTerminate, wire::Role::kWorker);
  EXPECT_EQ(Show(actions.Take()), "terminate worker 0; terminate worker 1");
  running.TellAllBut(Kind::kTerminate, wire::Role::kWorker);
  EXPECT_EQ(Show(actions.Take()), "terminate scheduler; terminate server 0");
  running.TellAll(Kind::kKill);
  EXPECT_EQ(Show(actions.Take()), "kill scheduler; kill server 0; kill worker 0; kill worker 1");
}

}  // namespace
}  // namespace cairn::cluster
