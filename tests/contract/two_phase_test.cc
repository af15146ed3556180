// Rounds in two phases and workers that run out of data, through the public API over real servers.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <future>
#include <limits>

#include "client/protocol/barrier_ranks.h"
#include "model.h"
#include "raw_peer.h"
#include "workers.h"

namespace cairn {
namespace {

using testing::Cluster;
using testing::Create;
using testing::Model;
using testing::RawPeer;
using testing::RunWorkers;
using testing::SpecOf;

const std::vector<uint64_t> kSizes{4000, 5990, 10};  // 10,000 elements: means of 2 have norm 200

DenseTable SyncTable(Client& client) {
  return Create(client, SpecOf(Model(kSizes), Mode::kSync, OptimizerKind::kSgd));
}

TEST(TwoPhase, ClippingByTheNormOfTheMeanGradient) {
  auto cluster = Cluster(2, 2, 2);
  RunWorkers(*cluster, 2, [&](Client& client) {
    DenseTable table = SyncTable(client);
    Model gradient(kSizes), weights(kSizes);
    for (int step = 1; step <= 10; ++step) {
      gradient.Fill(client.rank() == 0 ? 1.0f : 3.0f);
      RoundInfo info;
      ASSERT_CAIRN_OK(table.Contribute(gradient.in(), {.hyper = {.lr = 1}, .info = &info}).Wait());
      EXPECT_EQ(info.sum_squares, 40'000.0);
      EXPECT_TRUE(info.finite);
      EXPECT_FALSE(info.all_joined);
      gradient.Fill(std::numeric_limits<float>::quiet_NaN());  // the caller's again
      EXPECT_EQ(table.Push(gradient.in()).Wait().code(), Code::kNotFinite);
      Model values(kSizes, 1);
      const Status early = table.Push(values.in()).Wait();
      EXPECT_EQ(early.code(), Code::kInvalidArgument);
      EXPECT_EQ(early.message(),
                "round " + std::to_string(step - 1) + " of table \"model\" waits for Decide");
      const double scale = 100.0 / std::sqrt(info.sum_squares);
      ASSERT_CAIRN_OK(table.Decide(weights.out(), {.hyper = {.lr = 1}, .scale = scale}).Wait());
      EXPECT_EQ(weights, Model(kSizes, static_cast<float>(-step)));  // 0.5 × 2 each time
    }
    EXPECT_EQ(table.Decide(weights.out()).Wait().code(), Code::kInvalidArgument);
    EXPECT_EQ(table.round().value(), 10u);
  });
}

TEST(TwoPhase, ASkippedRoundChangesNothing) {
  auto cluster = Cluster(2, 2, 2);
  RunWorkers(*cluster, 2, [&](Client& client) {
    DenseTable table = SyncTable(client);
    Model gradient(kSizes, 2), weights(kSizes, -1);
    RoundInfo info;
    // Rank 1 has an inf and says so; both hear it, and skip.
    ASSERT_CAIRN_OK(
        table.Contribute(gradient.in(), {.not_finite = client.rank() == 1, .info = &info}).Wait());
    EXPECT_FALSE(info.finite);
    ASSERT_CAIRN_OK(table.Decide(weights.out(), {.skip = true}).Wait());
    EXPECT_EQ(weights, Model(kSizes, 0));
    ASSERT_CAIRN_OK(table.Pull(weights.out(), {.column = kStepColumn}).Wait());
    EXPECT_EQ(weights, Model(kSizes, 0));
    // An unsaid NaN is refused here, before anything is sent: the round can still be taken.
    gradient.tensors[1][17] = std::numeric_limits<float>::quiet_NaN();
    const Status bad = table.Contribute(gradient.in()).Wait();
    EXPECT_EQ(bad.code(), Code::kNotFinite);
    EXPECT_NE(bad.message().find("element 4017 "), std::string::npos) << bad.message();
    gradient.Fill(2);
    // AMP: gradients are scaled by 64, and by 1/64 on the servers.
    const ContributeOptions amp{.hyper = {.lr = 64}, .value_scale = 1.0 / 64, .info = &info};
    ASSERT_CAIRN_OK(table.Contribute(gradient.in(), amp).Wait());
    EXPECT_EQ(info.sum_squares, 10'000.0 * 4 / 4096);
    ASSERT_CAIRN_OK(table.Decide(weights.out(), {.hyper = {.lr = 64}}).Wait());
    EXPECT_EQ(weights, Model(kSizes, -2));
  });
}

TEST(TwoPhase, WorkersThatDisagreeAreToldAndGoOn) {
  auto cluster = Cluster(2, 2, 2);
  RunWorkers(*cluster, 2, [&](Client& client) {
    DenseTable table = SyncTable(client);
    Model gradient(kSizes, 2), weights(kSizes, -1);
    const double rank = client.rank();
    // In the first phase.
    const ContributeOptions own_rate{.hyper = {.lr = 1 + rank}};
    EXPECT_EQ(table.Contribute(gradient.in(), own_rate).Wait().code(), Code::kHyperMismatch);
    EXPECT_EQ(table.Decide(weights.out()).Wait().code(), Code::kInvalidArgument);  // nothing
    // One clips, the other does not.
    Pending round = rank == 0 ? table.Contribute(gradient.in()) : table.Push(gradient.in());
    EXPECT_EQ(round.Wait().code(), Code::kHyperMismatch);
    // In the second phase.
    ASSERT_CAIRN_OK(table.Contribute(gradient.in()).Wait());
    EXPECT_EQ(table.Decide(weights.out(), {.scale = 1 + rank}).Wait().code(), Code::kHyperMismatch);
    ASSERT_CAIRN_OK(table.Contribute(gradient.in()).Wait());
    EXPECT_EQ(table.Decide(weights.out(), {.skip = rank == 0}).Wait().code(), Code::kHyperMismatch);
    ASSERT_CAIRN_OK(table.PushPull(gradient.in(), weights.out(), {.hyper = {.lr = 1}}).Wait());
    EXPECT_EQ(weights, Model(kSizes, -2));
    EXPECT_EQ(table.round().value(), 5u);
  });
}

TEST(TwoPhase, WhoHasRunOutOfDataGoesAlongUntilAllHave) {
  for (const bool two_phases : {false, true}) {
    auto cluster = Cluster(2, 2, 2);
    std::atomic<uint64_t> ended_at[2] = {0, 0};
    RunWorkers(*cluster, 2, [&](Client& client) {
      DenseTable table = SyncTable(client);
      Model gradient(kSizes, client.rank() == 0 ? 1.0f : 3.0f), weights(kSizes, -1);
      const int batches = client.rank() == 0 ? 3 : 5;
      RoundInfo info;
      for (int step = 0; !info.all_joined; ++step) {
        ASSERT_LT(step, 20);
        const bool joined = step >= batches;
        if (two_phases) {
          const ContributeOptions given{.hyper = {.lr = 1}, .joined = joined, .info = &info};
          ASSERT_CAIRN_OK(table.Contribute(gradient.in(), given).Wait());
          if (step < 5) {
            EXPECT_FALSE(info.all_joined);
            EXPECT_EQ(info.sum_squares, (step < 3 ? 4 : 9) * 10'000.0);
          }
          const DecideOptions decided{.hyper = {.lr = 1}, .joined = joined, .info = &info};
          ASSERT_CAIRN_OK(table.Decide(weights.out(), decided).Wait());
        } else {
          Pending round =
              joined ? table.DonePull(weights.out(), {.hyper = {.lr = 1}, .joined = true, .info = &info})
                     : table.PushPull(gradient.in(), weights.out(), {.hyper = {.lr = 1}, .info = &info});
          ASSERT_CAIRN_OK(round.Wait());
        }
      }
      // Three times the mean of both, twice rank 1's alone: who has joined has no weight.
      EXPECT_EQ(weights, Model(kSizes, -3 * 2 - 2 * 3));
      ended_at[client.rank()] = table.round().value();
    });
    EXPECT_EQ(ended_at[0], 6u) << two_phases;
    EXPECT_EQ(ended_at[1], 6u) << two_phases;
  }
}

TEST(TwoPhase, ARoundThatIsAwaitedCanBeLeftAndTakenUpAgain) {
  auto cluster = Cluster(1, 2, 2);
  std::atomic<bool> looked{false};
  RunWorkers(*cluster, 2, [&](Client& client) {
    DenseTable table = SyncTable(client);
    Model gradient(kSizes, 1), weights(kSizes);
    if (client.rank() == 0) {
      Pending round = table.PushPull(gradient.in(), weights.out(), {.hyper = {.lr = 1}});
      for (int i = 0; i < 3; ++i) EXPECT_FALSE(round.WaitFor(5));  // rank 1 has not begun
      looked = true;
      looked.notify_all();
      bool ended = false;
      for (int i = 0; i < 3000 && !ended; ++i) ended = round.WaitFor(10);
      EXPECT_TRUE(ended);
      ASSERT_CAIRN_OK(round.Wait());
    } else {
      looked.wait(false);
      ASSERT_CAIRN_OK(table.PushPull(gradient.in(), weights.out(), {.hyper = {.lr = 1}}).Wait());
    }
    EXPECT_EQ(weights, Model(kSizes, -1));
  });
}

// What the client reads out of the scheduler's words is what they say.
TEST(TwoPhase, TheSchedulersWordsTellWhoIsInABarrier) {
  auto cluster = Cluster(1, 1, 2);
  auto honest = std::async(std::launch::async, [&] { return Client::Connect(testing::Quiet(*cluster, 0)); });
  RawPeer other(cluster->scheduler_port());
  wire::Register hello;
  hello.uid = 77;
  hello.wanted_rank = 1;
  hello.endpoint = {"127.0.0.1", 0};
  ASSERT_TRUE(other.Send(wire::ControlMessage(hello)));
  const auto registered = other.Await<wire::Registered>();
  ASSERT_TRUE(registered);
  auto client = honest.get();
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  auto barrier = std::async(std::launch::async, [&] { return (*client)->Barrier(); });
  wire::Heartbeat beat;
  beat.incarnation = registered->incarnation;
  beat.uid = 77;
  std::string awaiting;
  wire::ClusterState state;
  for (int i = 0; i < 10'000 && (awaiting.empty() || state.workers.size() < 2); ++i) {
    ASSERT_TRUE(other.Send(wire::ControlMessage(beat)));
    const auto reply = other.Await<wire::HeartbeatReply>();
    ASSERT_TRUE(reply);
    awaiting = reply->awaiting;
    if (const auto message = other.Await<wire::StateMessage>()) state = message->state;
  }
  EXPECT_EQ(client::RanksInBarrier(state, awaiting), std::vector<uint32_t>{0}) << awaiting;
  beat.barrier_count = 1;
  ASSERT_TRUE(other.Send(wire::ControlMessage(beat)));
  EXPECT_TRUE(barrier.get().ok());
}

}  // namespace
}  // namespace cairn
