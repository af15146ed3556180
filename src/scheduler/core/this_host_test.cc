// A scheduler whose own host has some of the nodes: when it goes on with those alone (rule 5).
#include "scheduler/core/fake_cluster.h"
#include "scheduler/rules/owners.h"

namespace cairn::scheduler {
namespace {

struct OwnHost : ::testing::Test {
  FakeCluster c{Options()};
  FakeNode s0, s1, w0, w1;
  static SchedulerOptions Options() {
    SchedulerOptions o = FakeCluster::Options(2, 2);
    o.replicas = 2;
    return o;
  }
  void SetUp() override {
    c.Start();
    s0 = c.Server(9000), s1 = c.Server(9001), w0 = c.Worker(1), w1 = c.Worker(2);
  }
  void Here(const std::vector<FakeNode*>& nodes) {
    for (const FakeNode* node : nodes) c.network.here.insert(node->conn);
    for (FakeNode* node : {&s0, &s1, &w0, &w1}) c.Beat(*node);
  }
  void ExpectNobodyIsBlamed() {
    EXPECT_EQ(c.state().phase, wire::Phase::kRunning) << c.state().failure;
    EXPECT_EQ(c.state().servers.size(), 2u);
    EXPECT_EQ(c.state().workers.size(), 2u);
  }
};

TEST_F(OwnHost, GoesOnAloneWithAWorkerAndAnOwnerOfEverything) {
  Here({&s0, &w0});
  c.Advance(5'100'000, {&s0, &w0});
  EXPECT_EQ(c.state().FindServer(1), nullptr);
  EXPECT_EQ(c.state().workers.size(), 1u);
  EXPECT_EQ(c.state().phase, wire::Phase::kRunning);
  EXPECT_FALSE(c.scheduler->cut_off());
  // Whoever is left is here: another death needs no word from elsewhere.
  c.Advance(5'100'000, {&s0});
  EXPECT_TRUE(c.state().workers.empty());
}

TEST_F(OwnHost, BlamesNobodyWithoutAWorker) {
  Here({&s0, &s1});
  c.Advance(8'000'000, {&s0, &s1});
  ExpectNobodyIsBlamed();
  EXPECT_TRUE(c.scheduler->cut_off());
}

TEST_F(OwnHost, BlamesNobodyWithAWorkerThatIsSilentToo) {
  Here({&s0, &w0});
  c.Advance(8'000'000, {&s0});
  ExpectNobodyIsBlamed();
}

TEST_F(OwnHost, BlamesNobodyWithoutAServer) {
  Here({&w0, &w1});
  c.Advance(8'000'000, {&w0, &w1});
  ExpectNobodyIsBlamed();
}

TEST_F(OwnHost, SaysOnceThatItMayBeCutOff) {
  Here({});
  c.Advance(10'000'000);
  EXPECT_EQ(c.CountLogged("this scheduler may be cut off"), 1u);
  c.Advance(1'000'000, {&s0});
  EXPECT_EQ(c.CountLogged("nodes are heard again"), 1u);
  c.Advance(10'000'000);
  EXPECT_EQ(c.CountLogged("this scheduler may be cut off"), 2u) << "another silence";
}

// A copy that is not whole is nothing to go on with.
TEST(OwnHostWithACopy, ThatIsUnderWayDoesNotGoOnAlone) {
  SchedulerOptions o = FakeCluster::Options(1, 2);
  o.replicas = 2;
  o.slot_count = 2;
  FakeCluster c(o);
  c.Start();
  FakeNode away = c.Server(9000), w0 = c.Worker(1), w1 = c.Worker(2), here = c.Server(9001);
  c.network.here = {here.conn, w0.conn};
  c.Advance(1'000'000, {&away, &w0, &w1, &here});
  ASSERT_EQ(CopyingSlots(c.state()), 2u);
  c.Advance(8'000'000, {&w0, &here});
  EXPECT_EQ(c.state().workers.size(), 2u);
  EXPECT_TRUE(c.scheduler->cut_off());
}

TEST(OwnHostAfterALeave, ServersThatLeftAreNotElsewhere) {
  SchedulerOptions o = FakeCluster::Options(2, 1);
  o.replicas = 2;
  FakeCluster c(o);
  c.Start();
  FakeNode here = c.Server(9000), away = c.Server(9001), w0 = c.Worker(1);
  c.network.here = {here.conn, w0.conn};
  away.beat.leaving = true;
  for (int i = 0; i < 100 && c.state().FindServer(1) != nullptr; ++i)
    c.AdvanceDone(100'000, {&here, &away}, {&w0});
  ASSERT_EQ(c.state().servers.size(), 1u);
  EXPECT_TRUE(c.Logged("alarm: with 1 server each partition has 1 copy, 2 are wanted"));
  c.Advance(5'100'000, {&here});
  EXPECT_TRUE(c.state().workers.empty()) << "all are here, so the worker's silence is its own";
}

}  // namespace
}  // namespace cairn::scheduler
