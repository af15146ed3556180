// Bad input, through the API and as raw frames past the client's own checks: each gets a clear
// error, and the cluster lives on (an honest worker goes on pushing and pulling exact values).
#include <gtest/gtest.h>

#include <cmath>
#include <future>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cairn/client.h"
#include "cairn/embedded.h"
#include "raw_peer.h"
#include "scheduler/node/scheduler_node.h"
#include "wire/cluster_state.h"
#include "wire/coding.h"

namespace cairn {
namespace {

using testing::RawPeer;
using wire::FrameType;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A cluster with an honest worker, and a registered rogue that has a data connection to the shard.
class BadInput : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster_ = EmbeddedCluster::Start({.servers = 1, .workers = 2, .slots = 8}).value();
    auto honest =
        std::async(std::launch::async, [&] { return Client::Connect(cluster_->ClientOptionsFor(0)); });
    control_ = std::make_unique<RawPeer>(cluster_->scheduler_port());
    wire::Register hello;
    hello.uid = 77;
    hello.wanted_rank = 1;
    hello.endpoint = {"127.0.0.1", 0};
    ASSERT_TRUE(control_->Send(wire::ControlMessage(hello)));
    auto registered = control_->Await<wire::Registered>();
    ASSERT_TRUE(registered);
    registered_ = *registered;
    client_ = std::move(honest.get()).value();
    TableSpec spec;
    spec.name = "emb";
    spec.kind = TableKind::kSparse;
    spec.dim = 4;
    sparse_ = client_->CreateSparse(spec).value();
    spec = {};
    spec.name = "w";
    spec.size = 100;
    dense_ = client_->CreateDense(spec).value();
    RefreshState();
    data_ = std::make_unique<RawPeer>(state_.servers[0].endpoint.port);
    ASSERT_TRUE(SayHello(*data_, state_.cluster_id));
  }

  // The newest state, through a heartbeat that claims to have none.
  void RefreshState() {
    wire::Heartbeat beat;
    beat.incarnation = registered_.incarnation;
    beat.uid = 77;
    ASSERT_TRUE(control_->Send(wire::ControlMessage(beat)));
    for (int i = 0; i < 50; ++i) {
      auto message = control_->Await<wire::StateMessage>();
      ASSERT_TRUE(message);
      state_ = message->state;
      if (state_.FindTable(std::string("w")) != nullptr) return;
    }
    FAIL() << "no state with the tables";
  }

  bool SayHello(RawPeer& peer, const std::string& cluster_id) {
    wire::Hello hello;
    hello.cluster_id = cluster_id;
    hello.incarnation = registered_.incarnation;
    hello.server_incarnation = state_.servers[0].incarnation;
    return peer.Send(wire::ControlMessage(hello)) && peer.Await<wire::HelloReply>().has_value();
  }

  wire::FramePtr SparsePush(TableId table, RowKey key, uint64_t seq, std::span<const float> row) {
    wire::PushParams params;
    const wire::SlotEntry entry{wire::SlotOfKey(key, 8).value, 1, seq};
    keys_ = {key};
    wire::DataParts parts;
    parts.type = FrameType::kPush;
    parts.request_id = ++request_;
    parts.incarnation = registered_.incarnation;
    parts.state_version = state_.version;
    parts.table = table;
    parts.params = &params;
    parts.entries = {&entry, 1};
    parts.keys = keys_;
    parts.values = {std::as_bytes(row)};
    return wire::EncodeData(std::move(parts), data_->pool());
  }

  // The honest worker still gets exact answers.
  void ExpectAlive() {
    const std::vector<RowKey> keys = {1, 2, 3};
    std::vector<float> before(12), after(12), add(12, 1.0f);
    ASSERT_TRUE(sparse_.Pull(keys, std::span<float>(before)).Wait().ok());
    ASSERT_TRUE(sparse_.Push(keys, std::span<const float>(add)).Wait().ok());
    ASSERT_TRUE(sparse_.Pull(keys, std::span<float>(after)).Wait().ok());
    for (size_t i = 0; i < 12; ++i) EXPECT_EQ(after[i], before[i] + 1.0f);
  }

  std::unique_ptr<EmbeddedCluster> cluster_;
  std::unique_ptr<Client> client_;
  SparseTable sparse_;
  DenseTable dense_;
  std::unique_ptr<RawPeer> control_, data_;
  wire::Registered registered_;
  wire::ClusterState state_;
  std::vector<RowKey> keys_;
  uint64_t request_ = 0;
};

// A PushReply that refuses, with this code and a text that says `words`.
void ExpectRefused(const std::optional<wire::InFrame>& frame, Code code, const std::string& words) {
  ASSERT_TRUE(frame);
  ASSERT_EQ(frame->header.type, FrameType::kPushReply);
  auto reply = wire::DecodePushReply(frame->header, frame->body());
  ASSERT_TRUE(reply.ok()) << reply.status().ToString();
  ASSERT_EQ(reply->entries.size(), 1u);
  EXPECT_EQ(static_cast<Code>(reply->entries[0].count), code);
  EXPECT_NE(reply->text.find(words), std::string_view::npos) << reply->text;
}

TEST_F(BadInput, ThroughTheApi) {
  std::vector<float> wrong(7), rows(3, 0.0f);
  const std::vector<RowKey> one = {5};
  Status s = dense_.Push(std::span<const float>(wrong)).Wait();
  EXPECT_EQ(s.code(), Code::kInvalidArgument);
  EXPECT_NE(s.message().find("100"), std::string::npos) << s.message();
  s = sparse_.Push(one, std::span<const float>(rows)).Wait();
  EXPECT_EQ(s.code(), Code::kInvalidArgument);
  EXPECT_NE(s.message().find("emb"), std::string::npos) << s.message();
  std::vector<float> nan(100, 1.0f);
  nan[17] = kNan;
  s = dense_.Push(std::span<const float>(nan)).Wait();
  EXPECT_EQ(s.code(), Code::kNotFinite);
  EXPECT_NE(s.message().find("17"), std::string::npos) << s.message();
  TableSpec other;
  other.name = "w";
  other.size = 101;
  auto conflict = client_->CreateDense(other);
  EXPECT_EQ(conflict.status().code(), Code::kAlreadyExists);
  EXPECT_NE(conflict.status().message().find("101"), std::string::npos) << conflict.status().message();
  other.name = std::string(100'000, 'x');
  EXPECT_EQ(client_->CreateDense(other).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(client_->DropTable("nobody").code(), Code::kNotFound);
  EXPECT_EQ(dense_.round().status().code(), Code::kInvalidArgument);  // async: it has no rounds
  ExpectAlive();
}

TEST_F(BadInput, RawNanIsRefusedAndItsNumberUsedUp) {
  const TableId table = state_.FindTable(std::string("emb"))->id;
  const float bad[4] = {1, kNan, 1, 1}, good[4] = {1, 1, 1, 1};
  ASSERT_TRUE(data_->Send(SparsePush(table, 42, 1, bad)));
  ExpectRefused(data_->Receive(), Code::kNotFinite, "emb");
  ASSERT_TRUE(data_->Send(SparsePush(table, 42, 1, bad)));  // every copy gets the same answer
  ExpectRefused(data_->Receive(), Code::kNotFinite, "");
  ASSERT_TRUE(data_->Send(SparsePush(table, 42, 2, good)));
  auto reply = data_->Receive();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->header.entry_count, 0u);  // applied
  const std::vector<RowKey> key = {42};
  std::vector<float> row(4);
  ASSERT_TRUE(sparse_.Pull(key, std::span<float>(row)).Wait().ok());
  EXPECT_EQ(row, std::vector<float>(4, 1.0f));
  ExpectAlive();
}

TEST_F(BadInput, RawWrongDimIsRefusedInWords) {
  const float row[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  ASSERT_TRUE(data_->Send(SparsePush(state_.FindTable(std::string("emb"))->id, 42, 1, row)));
  ExpectRefused(data_->Receive(), Code::kInvalidArgument, "dim 4");
  ExpectAlive();
}

TEST_F(BadInput, RawUnknownAndDroppedTables) {
  const float row[4] = {1, 1, 1, 1};
  ASSERT_TRUE(data_->Send(SparsePush(TableId(1000), 42, 1, row)));
  auto reply = data_->Receive();
  ASSERT_TRUE(reply);
  EXPECT_TRUE(reply->header.type == FrameType::kError || reply->header.entry_count > 0);
  const TableId dropped = state_.FindTable(std::string("w"))->id;
  ASSERT_TRUE(client_->DropTable("w").ok());
  const uint64_t seq = reply->header.type == FrameType::kError ? 1 : 2;
  ASSERT_TRUE(data_->Send(SparsePush(dropped, 42, seq, row)));
  ExpectRefused(data_->Receive(), Code::kNotFound, "table");
  ExpectAlive();
}

TEST_F(BadInput, FramesThatAreNoFrames) {
  const uint16_t ports[] = {state_.servers[0].endpoint.port, cluster_->scheduler_port()};
  for (uint16_t port : ports) {
    {  // another protocol
      RawPeer peer(port);
      const std::string http = "GET / HTTP/1.1\r\nHost: x\r\n\r\n" + std::string(64, ' ');
      ASSERT_TRUE(peer.SendBytes(std::as_bytes(std::span(http))));
      EXPECT_TRUE(peer.Closed());
    }
    wire::Hello hello;
    hello.cluster_id = state_.cluster_id;
    RawPeer maker(port);
    const wire::FramePtr good = wire::EncodeControl(wire::ControlMessage(hello), maker.pool());
    {  // another version, named in the answer
      RawPeer peer(port);
      wire::FramePtr frame = wire::EncodeControl(wire::ControlMessage(hello), peer.pool());
      frame->header().version = 9;
      wire::Seal(*frame);
      ASSERT_TRUE(peer.Send(frame));
      auto answer = peer.Receive();
      ASSERT_TRUE(answer);
      ASSERT_EQ(answer->header.type, FrameType::kError);
      auto error = wire::DecodeError(answer->header, answer->body());
      ASSERT_TRUE(error.ok());
      EXPECT_EQ(error->code, Code::kProtocol);
      EXPECT_NE(error->text.find("9"), std::string_view::npos) << error->text;
      EXPECT_TRUE(peer.Closed());
    }
    {  // a length beyond all bounds
      RawPeer peer(port);
      wire::FrameHeader header = good->header();
      header.body_bytes = 0xFFFFFFFF;
      ASSERT_TRUE(peer.SendBytes(std::as_bytes(std::span(&header, 1))));
      EXPECT_TRUE(peer.Closed());
    }
    {  // a damaged body
      RawPeer peer(port);
      Buffer bytes = wire::Flatten(*good, peer.pool());
      bytes.data()[bytes.size() - 1] ^= std::byte{1};
      ASSERT_TRUE(peer.SendBytes(bytes.bytes()));
      EXPECT_TRUE(peer.Closed());
    }
    {  // half a frame, then gone
      RawPeer peer(port);
      const Buffer bytes = wire::Flatten(*good, peer.pool());
      ASSERT_TRUE(peer.SendBytes(bytes.bytes().first(bytes.size() / 2)));
    }
  }
  {  // damage in the middle of an accepted data connection
    const float row[4] = {1, 1, 1, 1};
    const wire::FramePtr push = SparsePush(state_.FindTable(std::string("emb"))->id, 42, 1, row);
    Buffer bytes = wire::Flatten(*push, data_->pool());
    bytes.data()[70] ^= std::byte{0x40};
    ASSERT_TRUE(data_->SendBytes(bytes.bytes()));
    EXPECT_TRUE(data_->Closed());
  }
  ExpectAlive();
}

// Some hundred bytes that say they are 64 MiB of zeros: refused by the table's size, before any of it is
// made.
TEST_F(BadInput, CodedFramesAreHeldToTheirTable) {
  const std::vector<float> zeros(16 << 20);
  const wire::SlotEntry entry{0, static_cast<uint32_t>(zeros.size()), 1};
  wire::PushParams params;
  wire::DataParts parts;
  parts.type = FrameType::kPush;
  parts.request_id = ++request_;
  parts.incarnation = registered_.incarnation;
  parts.state_version = state_.version;
  parts.table = state_.FindTable(std::string("w"))->id;
  parts.params = &params;
  parts.entries = {&entry, 1};
  parts.values = {std::as_bytes(std::span(zeros))};
  parts.coding = wire::Coding::kNonZero;
  const wire::FramePtr plain = wire::EncodeData(std::move(parts), data_->pool());
  const wire::FramePtr coded = wire::CodeFrame(*plain, data_->pool());
  ASSERT_TRUE(coded);
  ASSERT_LT(coded->bytes(), 1000u);
  ASSERT_TRUE(data_->Send(coded));
  const auto answer = data_->Receive();
  ASSERT_TRUE(answer);
  ASSERT_EQ(answer->header.type, FrameType::kError);
  const auto error = wire::DecodeError(answer->header, answer->body());
  ASSERT_TRUE(error.ok());
  EXPECT_EQ(error->code, Code::kProtocol);
  EXPECT_NE(error->text.find("are allowed"), std::string_view::npos) << error->text;
  EXPECT_TRUE(data_->Closed());
  ExpectAlive();
}

TEST_F(BadInput, AnotherClustersWorker) {
  RawPeer peer(state_.servers[0].endpoint.port);
  wire::Hello hello;
  hello.cluster_id = "another";
  hello.incarnation = registered_.incarnation;
  hello.server_incarnation = state_.servers[0].incarnation;
  ASSERT_TRUE(peer.Send(wire::ControlMessage(hello)));
  auto refusal = peer.Await<wire::Refusal>();
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->code, Code::kProtocol);
  EXPECT_NE(refusal->text.find("another"), std::string::npos) << refusal->text;

  ClientOptions options = cluster_->ClientOptionsFor();
  options.cluster_id = "another";
  options.connect_timeout_ms = 20'000;
  auto client = Client::Connect(options);
  ASSERT_FALSE(client.ok());
  EXPECT_NE(client.status().message().find("another"), std::string::npos) << client.status().ToString();
  ExpectAlive();
}

TEST_F(BadInput, DataBeforeHello) {
  RawPeer peer(state_.servers[0].endpoint.port);
  const float row[4] = {1, 1, 1, 1};
  ASSERT_TRUE(peer.Send(SparsePush(state_.FindTable(std::string("emb"))->id, 42, 1, row)));
  EXPECT_TRUE(peer.Closed());
  ExpectAlive();
}

TEST_F(BadInput, SecondSchedulerOnTheSamePort) {
  scheduler::SchedulerNodeOptions options;
  options.port = cluster_->scheduler_port();
  auto second = scheduler::SchedulerNode::Start(options);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find(std::to_string(options.port)), std::string::npos);
  ExpectAlive();
}

TEST_F(BadInput, FiveHundredIdleConnections) {
  std::vector<std::unique_ptr<RawPeer>> idle;
  for (int i = 0; i < 500; ++i) {
    idle.push_back(
        std::make_unique<RawPeer>(i % 2 ? state_.servers[0].endpoint.port : cluster_->scheduler_port()));
    ASSERT_TRUE(idle.back()->connected());
  }
  ExpectAlive();
  RawPeer late(state_.servers[0].endpoint.port);  // a new worker's connection is still accepted
  EXPECT_TRUE(SayHello(late, state_.cluster_id));
}

}  // namespace
}  // namespace cairn
