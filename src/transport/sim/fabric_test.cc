// The simulated network: what arrives, in which order, and that a seed repeats itself.
#include "transport/sim/fabric.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "wire/control.h"
#include "wire/data.h"

namespace cairn::sim {
namespace {

// Counts what its port gets; the number of a GiveUp is the message.
class Recorder final : public PortHandler {
 public:
  void OnConnected(ConnId conn) override { connected = conn; }
  void OnMessage(ConnId conn, wire::InFrame& frame) override {
    last = conn;
    const auto message = wire::DecodeControl(frame.header, frame.body());
    if (const auto* number = std::get_if<wire::GiveUp>(&*message)) got.push_back(number->rank);
  }
  void OnDisconnect(ConnId conn) override { lost.push_back(conn); }
  ConnId connected, last;
  std::vector<uint32_t> got;
  std::vector<ConnId> lost;
};

class Unreadable final : public Tap {
 public:
  void OnSend(const Port&, const Port*, const wire::FrameHeader&, std::span<const std::byte>) override {}
  void OnUnreadable(const std::string& from, const std::string& to, const Status&) override {
    told.push_back(from + " to " + to);
  }
  std::vector<std::string> told;
};

class FabricTest : public testing::Test {
 protected:
  FabricTest() { Reset(1); }
  void Reset(uint64_t seed) {
    queue_ = std::make_unique<EventQueue>();
    trace_ = std::make_unique<Trace>();
    counts_ = {};
    fabric_ = std::make_unique<Fabric>(*queue_, seed, pool_, *trace_, counts_);
    client_ = {};
    server_ = {};
    client_process_ = fabric_->AddProcess(1, "client");
    server_process_ = fabric_->AddProcess(2, "server");
    client_port_ = fabric_->AddPort(client_process_, "client", 0, &client_);
    server_port_ = fabric_->AddPort(server_process_, "server", 0, &server_);
    Listen({});
  }
  void Listen(ListenLimits limits) {
    fabric_->Listen(
        server_process_, {"server", 1}, [this](const wire::InFrame&) { return server_port_; },
        std::move(limits));
  }
  void Connect() {
    conn_ = client_port_->Connect({"server", 1});
    Drain();
    ASSERT_EQ(client_.connected, conn_);
  }
  void Send(uint32_t number) { client_port_->Send(conn_, wire::EncodeControl(wire::GiveUp{number}, pool_)); }
  void Drain() {
    while (queue_->RunOne()) {
    }
  }

  BufferPool pool_;
  std::unique_ptr<EventQueue> queue_;
  std::unique_ptr<Trace> trace_;
  FaultCounts counts_;
  std::unique_ptr<Fabric> fabric_;
  Recorder client_, server_;
  int client_process_ = 0, server_process_ = 0;
  Port* client_port_ = nullptr;
  Port* server_port_ = nullptr;
  ConnId conn_;
};

// Sees what is sent, and what goes in fewer bytes.
class Codings final : public Tap {
 public:
  void OnSend(const Port&, const Port*, const wire::FrameHeader& header,
              std::span<const std::byte> body) override {
    flags = header.flags;
    sent.assign(body.begin(), body.end());
  }
  void OnCoded(wire::Coding coding) override { coded.push_back(coding); }
  void OnUnreadable(const std::string&, const std::string&, const Status& why) override {
    ADD_FAILURE() << why.ToString();
  }
  uint16_t flags = 0;
  std::vector<std::byte> sent;
  std::vector<wire::Coding> coded;
};

TEST_F(FabricTest, FramesAreCodedOnTheirWay) {
  struct Keeper final : PortHandler {
    void OnConnected(ConnId) override {}
    void OnMessage(ConnId, wire::InFrame& frame) override {
      flags = frame.header.flags;
      got.assign(frame.body().begin(), frame.body().end());
    }
    void OnDisconnect(ConnId) override {}
    uint16_t flags = 0;
    std::vector<std::byte> got;
  };
  Keeper keeper;
  Port* const port = fabric_->AddPort(server_process_, "keeper", 0, &keeper);
  fabric_->Listen(server_process_, {"server", 2}, [&](const wire::InFrame&) { return port; });
  Codings tap;
  fabric_->set_tap(&tap);
  const ConnId conn = client_port_->Connect({"server", 2});
  Drain();
  for (const wire::Coding coding : {wire::Coding::kFloat16, wire::Coding::kNonZero, wire::Coding::kLz4}) {
    const wire::SlotEntry entries[] = {{3, 300, 1}};
    wire::PushParams params;
    wire::DataParts parts;
    parts.type = wire::FrameType::kPush;
    parts.table = TableId{1};
    parts.params = &params;
    parts.entries = entries;
    parts.owned = pool_.Get(300 * sizeof(float));
    std::ranges::fill(parts.owned.bytes(), std::byte{0});
    parts.coding = coding;
    client_port_->Send(conn, wire::EncodeData(std::move(parts), pool_));
    Drain();
    EXPECT_EQ(tap.coded, std::vector<wire::Coding>{coding});
    EXPECT_EQ(tap.flags & wire::kFlagCoded, 0);
    EXPECT_EQ(keeper.flags, tap.flags);
    EXPECT_EQ(keeper.got, tap.sent);
    EXPECT_GE(keeper.got.size(), 1200u);
    tap.coded.clear();
  }
}

TEST_F(FabricTest, AFirstFrameThatIsTooLargeIsToldAndEndsTheConnection) {
  Unreadable tap;
  fabric_->set_tap(&tap);
  Listen({.max_first_bytes = 8});
  Connect();
  Send(1);
  Drain();
  EXPECT_EQ(tap.told, std::vector<std::string>{"client to server"});
  EXPECT_TRUE(server_.got.empty());
  EXPECT_EQ(client_.lost, std::vector<ConnId>{conn_});
}

TEST_F(FabricTest, LargeFramesFollowOnceTheAnswerAccepts) {
  Unreadable tap;
  fabric_->set_tap(&tap);
  const auto small = wire::EncodeControl(wire::GiveUp{1}, pool_)->header().body_bytes;
  Listen(
      {.max_first_bytes = small, .accepts = [](const wire::Frame& f) { return f.header().body_bytes > 0; }});
  const wire::Refusal long_text{0, Code::kInternal, std::string(1000, 'x')};
  const auto large = [&] { client_port_->Send(conn_, wire::EncodeControl(long_text, pool_)); };
  Connect();
  Send(1);
  Drain();
  server_port_->Send(server_.last, wire::EncodeControl(wire::GiveUp{2}, pool_));
  large();
  Drain();
  EXPECT_TRUE(tap.told.empty()) << "the server has answered before it has come";
  // What was lost before it, which TCP does not do, is no fault of its sender.
  conn_ = client_port_->Connect({"server", 1});
  Drain();
  fabric_->set_profile({.loss = 1});
  Send(1);
  fabric_->set_profile({});
  large();
  Drain();
  EXPECT_TRUE(tap.told.empty());
}

TEST_F(FabricTest, CalmConnectionsKeepTheirOrder) {
  Connect();
  for (uint32_t i = 0; i < 50; ++i) Send(i);
  Drain();
  ASSERT_EQ(server_.got.size(), 50u);
  EXPECT_TRUE(std::is_sorted(server_.got.begin(), server_.got.end()));
}

TEST_F(FabricTest, CloseComesBehindWhatIsOnItsWay) {
  Connect();
  Send(7);
  client_port_->Close(conn_);
  Drain();
  EXPECT_EQ(server_.got, std::vector<uint32_t>{7});
  EXPECT_EQ(server_.lost.size(), 1u);
  EXPECT_TRUE(client_.lost.empty()) << "no OnDisconnect for the one who closes";
}

TEST_F(FabricTest, ALateCopyFindsAnotherConnectionOfThePair) {
  fabric_->set_profile({.late_duplicate = 1, .late_us = 10'000'000});
  Connect();
  Send(7);
  fabric_->set_profile({});
  client_port_->Close(conn_);
  conn_ = client_port_->Connect({"server", 1});
  queue_->At(500'000, [this] { Send(8); });
  Drain();
  EXPECT_EQ(server_.got, (std::vector<uint32_t>{7, 8, 7}));
  EXPECT_EQ(counts_[Fault::kLateDuplicate], 1u);
}

TEST_F(FabricTest, PartitionsLoseOrKeepFrames) {
  Connect();
  fabric_->Block(1, 2, queue_->now_us() + 1'000'000, false);
  Send(1);
  Drain();
  EXPECT_TRUE(server_.got.empty());
  fabric_->Block(1, 2, queue_->now_us() + 1'000'000, true);
  Send(2);
  Drain();
  EXPECT_EQ(server_.got, std::vector<uint32_t>{2});
}

// Seed 120000393 of the simulator: a short partition of one server ended the scheduler's cut from it early.
TEST_F(FabricTest, AShorterPartitionEndsNoLongerOne) {
  Connect();
  const int64_t until_us = queue_->now_us() + 10'000'000;
  fabric_->Block(1, 2, until_us, true);
  fabric_->Block(1, 2, queue_->now_us() + 1'000'000, true);
  Send(1);
  Drain();
  EXPECT_EQ(server_.got, std::vector<uint32_t>{1});
  EXPECT_GE(queue_->now_us(), until_us);
}

TEST_F(FabricTest, ADeadProcessGetsNothingAndItsPeersHearOfIt) {
  Connect();
  Send(1);
  Drain();
  fabric_->Kill(server_process_, false);
  Drain();
  EXPECT_EQ(client_.lost, std::vector<ConnId>{conn_});
}

TEST_F(FabricTest, TheSameSeedGivesTheSameTrace) {
  auto run = [this](uint64_t seed) {
    Reset(seed);
    fabric_->set_profile(
        {.jitter_us = 500, .loss = 0.1, .reorder = 0.2, .reorder_us = 900, .duplicate = 0.2});
    Connect();
    for (uint32_t i = 0; i < 100; ++i) Send(i);
    Drain();
    return std::make_pair(trace_->hash(), server_.got);
  };
  const auto first = run(5), again = run(5), other = run(6);
  EXPECT_EQ(first, again);
  EXPECT_NE(first.first, other.first);
}

TEST_F(FabricTest, AProcessDiesBetweenTwoFramesOfOneCall) {
  Connect();
  fabric_->DieAfterSends(client_process_, 2, [this] { fabric_->Kill(client_process_, true); });
  for (uint32_t n = 1; n <= 4; ++n) Send(n);  // what a role sends in one call
  EXPECT_TRUE(fabric_->alive(client_process_));
  Drain();
  EXPECT_FALSE(fabric_->alive(client_process_));
  EXPECT_EQ(server_.got, (std::vector<uint32_t>{1, 2}));
}

TEST_F(FabricTest, WhoIsUnmutedLivesOnWithoutWhatItSaid) {
  Connect();
  fabric_->DieAfterSends(client_process_, 1, [this] { fabric_->Unmute(client_process_); });
  Send(1);
  Send(2);
  Drain();
  Send(3);
  Drain();
  EXPECT_EQ(server_.got, (std::vector<uint32_t>{1, 3}));
}

TEST_F(FabricTest, ABusyProcessHandlesWhatCameBehindItsCall) {
  Connect();
  fabric_->SetBusy(server_process_, true);
  Send(1);
  Send(2);
  Drain();
  EXPECT_TRUE(server_.got.empty());
  fabric_->SetBusy(server_process_, false);
  Drain();
  EXPECT_EQ(server_.got, (std::vector<uint32_t>{1, 2}));
}

TEST_F(FabricTest, ASlowLinkTakesLongerOneWayUntilItHeals) {
  Connect();
  fabric_->SlowLink(1, 2, 700'000);
  const int64_t start_us = queue_->now_us();
  Send(1);
  Drain();
  EXPECT_EQ(server_.got.size(), 1u);
  EXPECT_GE(queue_->now_us() - start_us, 700'000);
  fabric_->HealAll();
  const int64_t healed_us = queue_->now_us();
  Send(2);
  Drain();
  EXPECT_EQ(server_.got.size(), 2u);
  EXPECT_LT(queue_->now_us() - healed_us, 700'000);
}

}  // namespace
}  // namespace cairn::sim
