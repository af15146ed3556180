// Who has a loop's turn does its work: the loop's own thread, or one that will wait for it anyway.
#include "transport/tcp/loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

namespace cairn::transport {
namespace {

constexpr auto kMost = std::chrono::seconds(20);  // a deadline, not a measure

bool Eventually(const std::function<bool()>& what) {
  const auto end = std::chrono::steady_clock::now() + kMost;
  while (!what()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

// Something large to write, a piece in every turn; counts who wrote them.
class Written : public Polled {
 public:
  explicit Written(std::thread::id caller) : caller_(caller) {}
  void Begin(int pieces) {
    by_caller_ = by_loop_ = 0;
    left_ = pieces;
  }
  bool Poll() override {
    if (left_ == 0) return false;
    ++(std::this_thread::get_id() == caller_ ? by_caller_ : by_loop_);
    --left_;
    return true;
  }
  void AskToBeWoken() override {}
  bool HasWork() override { return left_ > 0; }
  bool Writing() const override { return left_ > 0; }
  void Awake() override {}
  int left() const { return left_; }
  int by_caller() const { return by_caller_; }
  int by_loop() const { return by_loop_; }

 private:
  const std::thread::id caller_;
  std::atomic<int> left_{0}, by_caller_{0}, by_loop_{0};
};

class Turns : public testing::Test {
 protected:
  Turns() {
    loop_.AddPolled(&written_);
    loop_.Start();
  }
  // Written as `stay` says, by the caller if it gets the turn: the loop's thread may be awake.
  void Write(LoopTurn::Stay stay, int pieces) {
    written_.Begin(0);
    loop_.turn()->Add([this, pieces] { written_.Begin(pieces); });
    loop_.turn()->Help(stay);
  }
  Written written_{std::this_thread::get_id()};
  Loop loop_{"test"};
};

TEST_F(Turns, WhoStaysWritesAllOfIt) {
  EXPECT_TRUE(Eventually([&] {
    Write(LoopTurn::Stay::kUntilWritten, 500);
    const bool at_once = written_.left() == 0 && written_.by_caller() == 500;
    EXPECT_TRUE(Eventually([&] { return written_.by_caller() + written_.by_loop() == 500; }));
    return at_once;
  }));
}

TEST_F(Turns, WhoGoesOnLeavesItToTheLoop) {
  for (int i = 0; i < 20; ++i) {
    Write(LoopTurn::Stay::kNo, 500);
    EXPECT_TRUE(Eventually([&] { return written_.by_caller() + written_.by_loop() == 500; }));
    EXPECT_LE(written_.by_caller(), 2);
  }
}

TEST_F(Turns, EveryCallRunsOnceAndInTheOrderOfItsThread) {
  constexpr int kThreads = 4, kCalls = 2000;
  std::vector<int> last(kThreads, -1);  // touched by whoever has the turn
  std::atomic<int> ran{0}, wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) {
        loop_.turn()->Add([&, t, i] {
          if (last[t] + 1 != i) ++wrong;
          last[t] = i;
          ++ran;
        });
        loop_.turn()->Help();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(Eventually([&] { return ran == kThreads * kCalls; }));
  EXPECT_EQ(wrong, 0);
}

TEST_F(Turns, ACallRunsAlthoughTheLoopEnds) {
  std::atomic<int> ran{0};
  const std::shared_ptr<LoopTurn> turn = loop_.turn();
  turn->Add([&] { ++ran; });
  loop_.Stop();
  turn->Help();
  EXPECT_EQ(ran, 1);
}

}  // namespace
}  // namespace cairn::transport
