// What supervise_servers_test.cc can't see from outside.
#include "cluster/supervise/server_supervisor.h"

#include <gtest/gtest.h>

#include "base/memory_limits.h"
#include "cluster/supervise/supervise_words.h"

namespace cairn::cluster {
namespace {

class Servers : public ::testing::Test {
 protected:
  explicit Servers(uint32_t replicas = 2)
      : options_{
            .servers = 2, .workers = 1, .replicas = replicas, .max_restarts = {.count = 1, .window_ms = 0}} {
    running_.Start(kScheduler);
    running_.Start(Worker(0));
    stages_.Run();
    servers_.StartAll();
    actions_.Take();
  }
  std::optional<Failure> End(uint32_t index, const ProcessEnd& end) {
    running_.Remove(Server(index));
    return servers_.OnEnd(Server(index), end, 10);
  }
  const SuperviseOptions options_;
  ActionList actions_;
  RunningNodes running_{actions_};
  Restarts restarts_{options_.max_restarts, running_, actions_};
  JobVerdict verdict_;
  JobStages stages_{options_, running_, actions_};
  ServerSupervisor servers_{options_, {running_, actions_, restarts_, verdict_, stages_}};
};
class OneCopy : public Servers {
 protected:
  OneCopy() : Servers(1) {}
};

TEST_F(Servers, DeathsAreNamedTogetherUntilEveryPartitionHasItsCopies) {
  EXPECT_FALSE(End(0, kKilled));
  EXPECT_EQ(servers_.DeathsTogether(), "");
  EXPECT_FALSE(End(1, kKilled));
  EXPECT_EQ(servers_.DeathsTogether(), "servers 0 and 1 died before their partitions were copied again");
  servers_.OnSeen({.asked_ms = 10, .answered = true, .copied = true});
  EXPECT_NE(servers_.DeathsTogether(), "") << "an answer from before the last death";
  servers_.OnSeen({.asked_ms = 11, .answered = true, .copied = true});
  EXPECT_EQ(servers_.DeathsTogether(), "");
}

TEST_F(Servers, OneIsGivenUpWhileOthersAreLeftAndTheLastTakesTheTablesWithIt) {
  EXPECT_FALSE(End(0, kKilled));
  EXPECT_EQ(Show(actions_.Take()), "start server 0");
  EXPECT_FALSE(End(1, kKilled));
  EXPECT_EQ(Show(actions_.Take()), "") << "the restart is used up";
  EXPECT_EQ(servers_.given_up(), 1u);
  const std::optional<Failure> failure = End(0, kKilled);
  ASSERT_TRUE(failure);
  EXPECT_NE(failure->consequence.find("no other server is left"), std::string::npos);
}

TEST_F(OneCopy, ADeathLosesTables) {
  const std::optional<Failure> failure = End(0, kKilled);
  ASSERT_TRUE(failure);
  EXPECT_NE(failure->consequence.find("--replicas 2"), std::string::npos);
  EXPECT_EQ(failure->exit_code, 137);
}

TEST_F(OneCopy, OutOfMemoryHasAdviceOfItsOwn) {
  const std::optional<Failure> failure = End(0, {.code = kOutOfMemoryCode});
  ASSERT_TRUE(failure);
  EXPECT_NE(failure->consequence.find("more memory"), std::string::npos);
}

TEST_F(OneCopy, AnErrorsCauseIsTheServersLastWord) {
  verdict_.OnLastWords("cairn: the job has failed: server 1 is lost");
  const std::optional<Failure> failure = End(0, {.code = 1});
  ASSERT_TRUE(failure);
  EXPECT_TRUE(failure->secondary);
  verdict_.Fail(*failure, "");
  EXPECT_EQ(verdict_.cause(""), "server 1 is lost");
}

}  // namespace
}  // namespace cairn::cluster
