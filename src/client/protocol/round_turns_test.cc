// Whose turn it is in the rounds of sync tables, from this worker's first round on.
#include "client/protocol/round_turns.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

namespace cairn::client {
namespace {

class RoundTurnsTest : public ::testing::Test {
 protected:
  RoundTurnsTest() {
    state.version = StateVersion{5};
    state.view = ViewNumber{1};
    state.views = {{ViewNumber{1}, {}}};
    state.workers = {{Rank{0}, Incarnation{7}, ViewNumber{1}, {}}};
    state.tables = {{kTable, {.name = "w", .mode = Mode::kSync, .size = 10}, ViewNumber{1}}};
    state.next_table = TableId{2};
  }
  void NewState() {
    state.version = state.version.Next();
    const auto shown = std::make_shared<const wire::ClusterState>(state);
    turns.OnNewState(shown, shown->FindWorker(Incarnation{7}));
  }
  static Request Of(Request::Kind kind) {
    Request request;
    request.kind = kind;
    request.table = kTable;
    return request;
  }

  static constexpr TableId kTable{1};
  wire::ClusterState state;
  RoundTurns turns;
};

TEST_F(RoundTurnsTest, BeforeThisWorkerIsInAViewThereAreNoRounds) {
  EXPECT_FALSE(turns.in_view());
  EXPECT_EQ(turns.Of(kTable), nullptr);
  EXPECT_EQ(turns.next_round(kTable), Round{0});
  state.workers[0].join_view = ViewNumber{0};
  NewState();
  EXPECT_FALSE(turns.in_view());
  EXPECT_EQ(turns.Of(kTable), nullptr);
  state.workers[0].join_view = ViewNumber{1};
  NewState();
  EXPECT_TRUE(turns.in_view());
  EXPECT_NE(turns.Of(kTable), nullptr);
}

TEST_F(RoundTurnsTest, ADroppedTableIsForgottenOnceNothingIsUnderWay) {
  NewState();
  TableOrder* order = turns.Of(kTable);
  ASSERT_NE(order, nullptr);
  order->Add(1, Request::Kind::kRound, false);
  EXPECT_EQ(order->Next().request, 1u);
  state.tables.clear();
  NewState();
  EXPECT_NE(turns.Of(kTable), nullptr);  // its round is under way
  turns.Of(kTable)->Ended(1);
  NewState();
  EXPECT_EQ(turns.Of(kTable), nullptr);
}

TEST_F(RoundTurnsTest, AnOpenRoundWaitsForItsDecision) {
  NewState();
  EXPECT_TRUE(turns.CheckTurn(Of(Request::Kind::kRound)).ok());
  EXPECT_EQ(turns.CheckTurn(Of(Request::Kind::kDecide)).message(),
            "table \"w\" has no round to decide: Contribute comes first");
  TableOrder* order = turns.Of(kTable);
  order->Add(1, Request::Kind::kContribute, false);
  ASSERT_EQ(order->Next().request, 1u);
  EXPECT_FALSE(turns.CheckTurn(Of(Request::Kind::kDecide)).ok());  // not summed up yet
  order->Ended(1);
  EXPECT_TRUE(turns.CheckTurn(Of(Request::Kind::kDecide)).ok());
  EXPECT_FALSE(turns.CheckTurn(Of(Request::Kind::kRound)).ok());
  Request joined = Of(Request::Kind::kDecide);
  joined.joined = true;
  EXPECT_FALSE(turns.CheckTurn(joined).ok());  // it contributed as one who has not joined
}

}  // namespace
}  // namespace cairn::client
