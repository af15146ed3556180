// Who is answered and who is sent away, when a reign ends, and when the process is over.
#include "scheduler/core/seat.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "wire/control.h"

namespace cairn::scheduler {
namespace {

// Notes what it is given; the test says what it answers.
struct Script {
  std::vector<std::string> heard;
  bool cut_off = false, finished = false;
  Status fatal;
  int64_t takes_us = 0;  // each call
  int64_t* now_us = nullptr;
  wire::ClusterState state;
};

class ScriptedScheduler final : public Scheduler {
 public:
  explicit ScriptedScheduler(Script& script) : script_(script) {}
  void OnMessage(ConnId conn, const wire::InFrame&, int64_t) override { Hear("message", conn); }
  void OnDisconnect(ConnId conn, int64_t) override { Hear("gone", conn); }
  void OnTick(int64_t) override { Hear("tick", ConnId{}); }
  int64_t next_tick_us() const override { return 10'000; }
  void OnWaited(int64_t us) override { script_.heard.push_back("waited " + std::to_string(us)); }
  bool cut_off() const override { return script_.cut_off; }
  bool finished() const override { return script_.finished; }
  Status fatal() const override { return script_.fatal; }
  const wire::ClusterState& state() const override { return script_.state; }
  std::string StatusJson(int64_t) override { return "{}"; }

 private:
  void Hear(const char* what, ConnId conn) {
    script_.heard.push_back(what + std::string(conn.value == 0 ? "" : " " + std::to_string(conn.value)));
    *script_.now_us += script_.takes_us;
  }
  Script& script_;
};

class NotingNetwork final : public Network {
 public:
  ConnId Connect(const wire::Endpoint&) override { return {}; }
  void Send(ConnId, wire::FramePtr frame) override {
    auto message =
        wire::DecodeControl(frame->header(), frame->head.bytes().subspan(sizeof(wire::FrameHeader)));
    ASSERT_TRUE(message.ok());
    if (const auto* refusal = std::get_if<wire::Refusal>(&*message)) refusals.push_back(refusal->text);
  }
  void Close(ConnId conn) override { closed.insert(conn.value); }
  std::vector<std::string> refusals;
  std::set<uint64_t> closed;
};

class Seat : public testing::Test, public SchedulerSeat::Driver {
 protected:
  int64_t NowUs() const override { return now_us; }
  void Stand() override { ++stood; }
  void StandBack() override { ++stood_back; }
  void EndReign(std::unique_ptr<Scheduler> scheduler) override { reigns_ended += scheduler != nullptr; }
  void OnOver(const Status& why, bool at_once) override { over.emplace_back(why, at_once); }

  void Make(bool several) {
    script.now_us = &now_us;
    seat = std::make_unique<SchedulerSeat>(
        SchedulerSeat::Options{.several = several, .lost_after_us = 60'000'000}, network, pool, log, *this);
  }
  void Lead() { seat->Lead(std::make_unique<ScriptedScheduler>(script)); }
  void Win() {
    seat->OnWon();
    Lead();
  }
  void Say(uint64_t conn) {
    wire::InFrame frame;
    seat->OnMessage(ConnId{conn}, frame);
  }
  std::vector<std::string> Heard() { return std::exchange(script.heard, {}); }

  int64_t now_us = 1'000'000;
  BufferPool pool;
  NotingNetwork network;
  const LogLine log = [](const std::string&) {};
  Script script;
  std::unique_ptr<SchedulerSeat> seat;
  int stood = 0, stood_back = 0, reigns_ended = 0;
  std::vector<std::pair<Status, bool>> over;
};

using Lines = std::vector<std::string>;

TEST_F(Seat, AloneItAnswersFromItsStart) {
  Make(false);
  Lead();
  Say(7);
  seat->OnDisconnect(ConnId{7});
  seat->OnTick();
  EXPECT_EQ(Heard(), (Lines{"message 7", "gone 7", "tick"}));
  EXPECT_EQ(seat->NextTickUs(50'000), 10'000);
}

TEST_F(Seat, AStandbySaysWhoLeads) {
  Make(true);
  Say(1);
  seat->OnStandby("10.0.0.1:9000");
  Say(2);
  seat->OnDisconnect(ConnId{2});
  EXPECT_EQ(network.refusals, (Lines{"this scheduler is a standby; nobody leads yet",
                                     "this scheduler is a standby; the leader is at 10.0.0.1:9000"}));
  EXPECT_EQ(network.closed, (std::set<uint64_t>{1, 2}));
  EXPECT_EQ(seat->NextTickUs(50'000), 50'000);
}

TEST_F(Seat, WhileEtcdIsSilentNodesAreSentAwayAndTheSchedulerHearsLaterWhoIsGone) {
  Make(true);
  Win();
  Say(1);
  Say(2);
  seat->OnEtcd(false);
  Say(1);
  seat->OnDisconnect(ConnId{2});
  seat->OnTick();
  EXPECT_EQ(Heard(), (Lines{"message 1", "message 2"}));
  EXPECT_EQ(network.refusals, Lines{"this scheduler can't reach etcd, another one may lead"});
  seat->OnEtcd(true);
  EXPECT_EQ(Heard(), (Lines{"gone 1", "gone 2"}));
  Say(3);
  EXPECT_EQ(Heard(), Lines{"message 3"});
}

TEST_F(Seat, OneThatHearsNobodyResignsAndStandsAgainWhenItIsFound) {
  Make(true);
  Win();
  Say(1);
  script.cut_off = true;
  seat->OnTick();
  EXPECT_EQ(reigns_ended, 1);
  EXPECT_EQ(stood_back, 1);
  EXPECT_TRUE(seat->resigned() && !seat->leads());
  EXPECT_EQ(network.closed, std::set<uint64_t>{1});
  Say(2);
  EXPECT_EQ(stood, 1);
  EXPECT_EQ(network.refusals.size(), 1u) << "it stands, and does not lead yet";
  script.cut_off = false;
  Win();
  Heard();
  Say(3);
  EXPECT_EQ(Heard(), Lines{"message 3"});
}

TEST_F(Seat, OneThatNobodyFindsStandsAgainInTheEnd) {
  Make(true);
  Win();
  script.cut_off = true;
  seat->OnTick();
  now_us += 59'999'999;
  seat->OnTick();
  EXPECT_EQ(stood, 0);
  now_us += 1;
  seat->OnTick();
  EXPECT_EQ(stood, 1);
}

TEST_F(Seat, AloneItGoesOnThoughItHearsNobody) {
  Make(false);
  Lead();
  script.cut_off = true;
  seat->OnTick();
  EXPECT_TRUE(seat->leads());
  EXPECT_EQ(reigns_ended, 0);
}

TEST_F(Seat, ALongWaitForTheStoreIsToldAsOne) {
  Make(false);
  Lead();
  script.takes_us = 19'999;
  Say(1);
  EXPECT_EQ(Heard(), Lines{"message 1"});
  script.takes_us = 20'000;
  Say(1);
  EXPECT_EQ(Heard(), (Lines{"message 1", "waited 20000"}));
}

TEST_F(Seat, AfterAFailedAppendNothingIsTold) {
  Make(false);
  Lead();
  script.fatal = Status(Code::kIo, "disk full");
  Say(1);
  ASSERT_EQ(over.size(), 1u);
  EXPECT_EQ(over[0].first.code(), Code::kIo);
  EXPECT_TRUE(over[0].second);
  Heard();
  Say(2);
  seat->OnDisconnect(ConnId{1});
  seat->OnTick();
  EXPECT_EQ(Heard(), Lines{});
  EXPECT_EQ(over.size(), 1u);
}

TEST_F(Seat, ALostLeadEndsTheProcessAtOnce) {
  Make(true);
  Win();
  seat->OnLost(Status(Code::kUnavailable, "another one leads"));
  ASSERT_EQ(over.size(), 1u);
  EXPECT_TRUE(over[0].second);
}

TEST_F(Seat, AtTheEndOfTheJobTheLastWordsGoOut) {
  Make(false);
  Lead();
  script.finished = true;
  seat->OnTick();
  ASSERT_EQ(over.size(), 1u);
  EXPECT_TRUE(over[0].first.ok());
  EXPECT_FALSE(over[0].second);
  EXPECT_EQ(seat->final_status(), "{}");
}

TEST_F(Seat, AFailedJobEndsWithItsReason) {
  Make(false);
  Lead();
  script.finished = true;
  script.state.phase = wire::Phase::kFailed;
  script.state.failure = "server 1 is lost";
  seat->OnTick();
  ASSERT_EQ(over.size(), 1u);
  EXPECT_EQ(over[0].first.code(), Code::kJobFailed);
  EXPECT_EQ(over[0].first.message(), "server 1 is lost");
}

TEST_F(Seat, ToldToStopItEndsWell) {
  Make(true);
  seat->Stop();
  ASSERT_EQ(over.size(), 1u);
  EXPECT_TRUE(over[0].first.ok());
  EXPECT_FALSE(over[0].second);
  EXPECT_EQ(seat->final_status(), "");
}

}  // namespace
}  // namespace cairn::scheduler
