// Trips: what is collected, when it goes, and that it goes together and in order.
#include "client/protocol/open_trips.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace cairn::client {
namespace {

class OpenTripsTest : public ::testing::Test {
 protected:
  OpenTripsTest()
      : trips([this](OpenTrip::Calls calls) {
          gone.emplace_back();
          for (Call<void()>& call : calls) call();
        }) {}
  void Add(OpenTrip& trip, int call) {
    trip.Add([this, call] { gone.back().push_back(call); });
  }
  using Gone = std::vector<std::vector<int>>;

  const CallerId here{1}, elsewhere{2};
  Gone gone;  // by hand-over
  OpenTrips trips;
};

TEST_F(OpenTripsTest, CallsOfATripGoTogetherAtItsEnd) {
  const auto trip = trips.Begin(here);
  Add(*trip, 1);
  Add(*trips.Of(here), 2);
  EXPECT_TRUE(gone.empty());
  EXPECT_TRUE(trips.End(trip.get()));
  EXPECT_EQ(gone, (Gone{{1, 2}}));
  EXPECT_EQ(trips.Of(here), nullptr);
  EXPECT_EQ(trips.size(), 0u);
}

TEST_F(OpenTripsTest, ANestedTripGoesWithTheOutermost) {
  const auto outer = trips.Begin(here);
  const auto inner = trips.Begin(here);
  EXPECT_EQ(inner, outer);
  Add(*inner, 1);
  EXPECT_FALSE(trips.End(inner.get()));
  EXPECT_TRUE(gone.empty());
  EXPECT_TRUE(trips.End(outer.get()));
  EXPECT_EQ(gone, (Gone{{1}}));
}

TEST_F(OpenTripsTest, EveryCallerHasItsOwn) {
  const auto mine = trips.Begin(here);
  const auto theirs = trips.Begin(elsewhere);
  EXPECT_NE(mine, theirs);
  Add(*mine, 1);
  Add(*theirs, 2);
  EXPECT_TRUE(trips.End(theirs.get()));
  EXPECT_EQ(gone, (Gone{{2}}));
  EXPECT_EQ(trips.Of(here), mine);
  EXPECT_TRUE(trips.End(mine.get()));
}

TEST_F(OpenTripsTest, AWaitSendsEarlyAndTheRestGoesLater) {
  const auto trip = trips.Begin(here);
  Add(*trip, 1);
  trip->Send();
  trip->Send();  // nothing more
  Add(*trip, 2);
  EXPECT_EQ(gone, (Gone{{1}}));
  EXPECT_TRUE(trips.End(trip.get()));
  EXPECT_EQ(gone, (Gone{{1}, {2}}));
}

TEST_F(OpenTripsTest, AClosingClientSendsAll) {
  const auto mine = trips.Begin(here);
  const auto theirs = trips.Begin(elsewhere);
  Add(*mine, 1);
  Add(*theirs, 2);
  trips.SendAll();
  EXPECT_EQ(gone, (Gone{{1}, {2}}));
  EXPECT_TRUE(trips.End(mine.get()));  // nothing is left of it
  EXPECT_EQ(gone.size(), 2u);
}

}  // namespace
}  // namespace cairn::client
