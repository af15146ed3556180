// How calls get to the core: at once, with their caller's trip, or not at all.
#include "client/protocol/call_gate.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace cairn::client {
namespace {

class CallGateTest : public ::testing::Test, public CallGate::Way {
 protected:
  void Post(Call<void()> call) override { running.Run(call); }
  void Post(OpenTrip::Calls calls) override { running.Run(calls); }
  // A call that notes which trip it ran in.
  Status Begin(CallerId caller) {
    return gate.Begin(caller, [this] { trips.push_back(running.number()); }, &trip);
  }

  const CallerId here{1}, elsewhere{2};
  const Status closed{Code::kCancelled, "closed"};
  RunningTrip running;
  std::vector<uint64_t> trips;  // of the calls that ran
  std::shared_ptr<OpenTrip> trip;
  CallGate gate{*this};
};

TEST_F(CallGateTest, WithoutATripEachIsOneOfItsOwn) {
  EXPECT_TRUE(Begin(here).ok());
  EXPECT_EQ(trip, nullptr);
  EXPECT_TRUE(Begin(here).ok());
  EXPECT_EQ(trips, (std::vector<uint64_t>{1, 2}));
}

TEST_F(CallGateTest, CallsOfATripRunTogetherWhenItEndsOrIsSent) {
  const auto open = gate.BeginTrip(here);
  EXPECT_TRUE(Begin(here).ok());
  EXPECT_EQ(trip, open);
  EXPECT_TRUE(Begin(here).ok());
  EXPECT_TRUE(Begin(elsewhere).ok()) << "has none";
  EXPECT_EQ(trips, (std::vector<uint64_t>{1}));
  gate.SendTripOf(elsewhere);
  gate.SendTripOf(here);
  EXPECT_EQ(trips, (std::vector<uint64_t>{1, 2, 2}));
  EXPECT_TRUE(Begin(here).ok());
  EXPECT_TRUE(gate.EndTrip(open.get()));
  EXPECT_EQ(trips, (std::vector<uint64_t>{1, 2, 2, 3}));
}

TEST_F(CallGateTest, ClosingSendsWhatWasBegunAndTakesNoMore) {
  const auto open = gate.BeginTrip(here);
  EXPECT_TRUE(Begin(here).ok());
  EXPECT_TRUE(gate.closed().ok());
  EXPECT_TRUE(gate.Close(closed));
  EXPECT_EQ(trips, (std::vector<uint64_t>{1}));
  EXPECT_EQ(Begin(here), closed);
  EXPECT_EQ(gate.closed(), closed);
  EXPECT_FALSE(gate.Close({Code::kInternal, "again"}));
  EXPECT_TRUE(gate.EndTrip(open.get()));
  EXPECT_EQ(trips.size(), 1u);
}

}  // namespace
}  // namespace cairn::client
