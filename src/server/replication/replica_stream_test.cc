// Each end of the stream between two shard threads by itself: order, resending, confirmations, refused
// slots, frames that come early. replica_stream_loss_test.cc has both over a bad network.
#include "server/replication/replica_stream.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <variant>

#include "server/replication/replica_stream_harness.h"
#include "wire/data.h"

namespace cairn::server {
namespace {

using Verdict = ReplicaReceiver::Verdict;

struct Confirmation {
  uint64_t up_to = 0;
  std::vector<uint32_t> refused;
  bool operator==(const Confirmation&) const = default;
};

class ReplicaSending : public ::testing::Test, public ReplicaSender::Listener {
 protected:
  ReplicaSending() : net(pool) {
    route.cluster_id = "test";
    route.from_server = 3, route.from_thread = 1, route.from_incarnation = Incarnation{30};
    route.to_server = 4, route.to_thread = 2, route.to_incarnation = Incarnation{40};
    route.endpoint = {"peer", 7001};
    sender = std::make_unique<ReplicaSender>(route, times, net, pool, by_conn, *this);
  }
  void OnConfirmed(ReplicaSender& from, uint64_t up_to, std::span<const wire::SlotEntry> refused,
                   int64_t) override {
    EXPECT_EQ(&from, sender.get());
    EXPECT_EQ(from.confirmed(), up_to);
    confirmations.push_back({up_to, {}});
    for (const wire::SlotEntry& entry : refused) confirmations.back().refused.push_back(entry.slot);
    if (stop_when_confirmed) sender->Stop();
  }

  ConnId conn() const { return ConnId{net.endpoints.size()}; }
  void Say(const wire::Frame& frame) { sender->OnMessage(net.Parsed(frame), now); }
  void Say(const wire::ControlMessage& message) { Say(*wire::EncodeControl(message, pool)); }
  void Ack(uint64_t up_to, std::vector<wire::SlotEntry> refused = {}) {
    Say(*wire::EncodeReplicaAck(up_to, refused, 1, pool));
  }
  void Greet(uint64_t received) {
    sender->OnConnected(now);
    Say(wire::ReplicaHelloReply{wire::kProtocolVersion, received});
  }
  void Push(uint32_t slot = 0, size_t payload_bytes = 8) {
    AddOp(*sender, slot, payload_bytes);
    sender->Flush(1, now);
  }
  void Tick(int64_t step_us) {
    now += step_us;
    sender->OnTick(now);
  }
  // Numbers of the kReplicate frames sent on the newest connection, in order.
  std::vector<uint64_t> Numbers() {
    std::vector<uint64_t> numbers;
    for (const wire::InFrame& frame : net.sent[conn()])
      if (frame.header.type == wire::FrameType::kReplicate) numbers.push_back(frame.header.request_id);
    return numbers;
  }
  void Reconnect(uint64_t received) {
    sender->OnDisconnect(now);
    Tick(times.reconnect.max_us);
    Greet(received);
  }

  BufferPool pool;
  StreamNetwork net;
  SendersByConn by_conn;
  ReplicaRoute route;
  PeerLink::Times times;
  std::unique_ptr<ReplicaSender> sender;
  std::vector<Confirmation> confirmations;
  bool stop_when_confirmed = false;
  int64_t now = 1'000'000;
};

using Numbered = std::vector<uint64_t>;

TEST_F(ReplicaSending, ItSaysWhoTalksToWhomAndSendsNothingBeforeTheAnswer) {
  sender->Start(now);
  EXPECT_EQ(net.endpoints, std::vector<wire::Endpoint>{route.endpoint});
  EXPECT_EQ(by_conn.at(conn()), sender.get());
  Push();
  EXPECT_TRUE(net.sent[conn()].empty());
  sender->OnConnected(now);
  ASSERT_EQ(net.sent[conn()].size(), 1u);
  const wire::InFrame& first = net.sent[conn()][0];
  const auto message = wire::DecodeControl(first.header, first.body());
  const auto& hello = std::get<wire::ReplicaHello>(*message);
  EXPECT_EQ(hello.cluster_id, "test");
  EXPECT_EQ(hello.from_server, 3u);
  EXPECT_EQ(hello.from_thread, 1u);
  EXPECT_EQ(hello.from_incarnation, Incarnation{30});
  EXPECT_EQ(hello.to_incarnation, Incarnation{40});
  EXPECT_EQ(hello.to_thread, 2u);
  Say(wire::ReplicaHelloReply{wire::kProtocolVersion, 0});
  EXPECT_TRUE(sender->ready());
  EXPECT_EQ(Numbers(), Numbered{1});
}

// The backup was stopped while it was connected to: TCP answered first, since the kernel does.
TEST_F(ReplicaSending, AStreamThatFellBackToTcpComesBackToSharedMemory) {
  net.fell_back = true;
  sender->Start(now);
  Greet(0);
  Push();
  Ack(1);
  Tick(4'900'000);
  EXPECT_EQ(net.endpoints.size(), 1u);
  Tick(200'000);
  ASSERT_EQ(net.endpoints.size(), 2u) << "after five seconds, at once";
  EXPECT_EQ(net.closed, std::vector<ConnId>{ConnId{1}});
  Push();
  Greet(1);
  EXPECT_EQ(Numbers(), Numbered{2});
  // Something is under way when its time has come again, ten seconds later: it gets five more to end.
  for (int i = 0; i < 149; ++i) {
    ++net.bulk_progress;
    Tick(100'000);
  }
  ASSERT_EQ(net.endpoints.size(), 2u);
  net.fell_back = false;
  ++net.bulk_progress;
  Tick(100'000);
  ASSERT_EQ(net.endpoints.size(), 3u);
  Greet(1);
  EXPECT_EQ(Numbers(), Numbered{2}) << "what was not confirmed is sent again";
  Ack(2);
  for (int i = 0; i < 600; ++i) Tick(1'000'000);
  EXPECT_EQ(net.endpoints.size(), 3u) << "that one has it";
  EXPECT_EQ(confirmations, (std::vector<Confirmation>{{1, {}}, {2, {}}}));
}

TEST_F(ReplicaSending, FramesAreNumberedFromOneAndCarryIncarnationAndVersion) {
  sender->Start(now);
  Greet(0);
  EXPECT_EQ(sender->next_number(), 1u);
  AddOp(*sender, 5);
  AddOp(*sender, 6);
  EXPECT_EQ(sender->next_number(), 1u) << "until it is flushed";
  sender->Flush(17, now);
  sender->Flush(17, now);
  EXPECT_EQ(sender->next_number(), 2u) << "an empty batch is no frame";
  Push();
  ASSERT_EQ(Numbers(), (Numbered{1, 2}));
  const wire::InFrame& frame = net.sent[conn()][1];
  EXPECT_EQ(frame.header.incarnation, 30u);
  EXPECT_EQ(frame.header.state_version, 17u);
  wire::OpReader reader(frame.body());
  wire::OpView op;
  ASSERT_TRUE(reader.Next(&op));
  EXPECT_EQ(op.header.slot, 5u);
  ASSERT_TRUE(reader.Next(&op));
  EXPECT_EQ(op.header.slot, 6u);
  EXPECT_FALSE(reader.Next(&op));
}

TEST_F(ReplicaSending, ConfirmationsFreeWhatIsKept) {
  sender->Start(now);
  Greet(0);
  Push(0, 800);
  now += 1000;
  Push(0, 80);
  now += 500;
  const uint64_t both = sender->unconfirmed_bytes();
  EXPECT_EQ(both, 2 * (sizeof(wire::FrameHeader) + sizeof(wire::OpHeader)) + 880);
  EXPECT_EQ(sender->oldest_unconfirmed_us(now), 1500);
  Ack(1);
  EXPECT_EQ(sender->unconfirmed_bytes(), sizeof(wire::FrameHeader) + sizeof(wire::OpHeader) + 80);
  EXPECT_EQ(sender->oldest_unconfirmed_us(now), 0) << "something has just been confirmed";
  now += 300;
  EXPECT_EQ(sender->oldest_unconfirmed_us(now), 300);
  Ack(2);
  EXPECT_EQ(sender->unconfirmed_bytes(), 0u);
  EXPECT_EQ(sender->oldest_unconfirmed_us(now), 0);
  EXPECT_EQ(sender->sent_bytes(), both);
  EXPECT_EQ(confirmations, (std::vector<Confirmation>{{1, {}}, {2, {}}}));
}

TEST_F(ReplicaSending, OldRepeatedAndImpossibleConfirmationsDoNoHarm) {
  sender->Start(now);
  Greet(0);
  for (int i = 0; i < 3; ++i) Push();
  Ack(2);
  Ack(2);
  Ack(1);
  Ack(0);
  EXPECT_EQ(confirmations, (std::vector<Confirmation>{{2, {}}}));
  EXPECT_EQ(sender->confirmed(), 2u);
  Ack(4);  // never sent
  EXPECT_EQ(sender->confirmed(), 2u);
  EXPECT_FALSE(sender->ready());
  EXPECT_EQ(sender->Trouble(), "it confirms frame 4, the last sent is 3");
  Tick(2 * times.reconnect.min_us);
  Greet(2);
  EXPECT_EQ(Numbers(), Numbered{3});
}

TEST_F(ReplicaSending, RefusedSlotsAreReportedWithEveryConfirmationThatIsNotOld) {
  sender->Start(now);
  Greet(0);
  for (int i = 0; i < 3; ++i) Push();
  Ack(1, {{7, 0, 2}, {9, 0, 3}});
  Ack(1, {{7, 0, 2}, {9, 0, 3}});
  Ack(3, {{9, 0, 3}});
  Ack(2, {{7, 0, 2}, {9, 0, 3}});  // overtaken: 7 has been taken since
  EXPECT_EQ(confirmations, (std::vector<Confirmation>{{1, {7, 9}}, {1, {7, 9}}, {3, {9}}}));
}

TEST_F(ReplicaSending, ANewConnectionGoesOnBehindWhatThePeerHasAndKeepsTheOrder) {
  sender->Start(now);
  Greet(0);
  for (int i = 0; i < 5; ++i) Push();
  Ack(1);
  Reconnect(3);
  EXPECT_EQ(Numbers(), (Numbered{4, 5}));
  EXPECT_EQ(sender->resent_frames(), 2u);
  EXPECT_EQ(sender->confirmed(), 1u) << "the answer to a hello can't name refused slots";
  Ack(3, {{7, 0, 2}});
  EXPECT_EQ(confirmations, (std::vector<Confirmation>{{1, {}}, {3, {7}}}));
  Push();
  EXPECT_EQ(Numbers(), (Numbered{4, 5, 6}));
}

TEST_F(ReplicaSending, WhatIsFlushedWithoutAConnectionIsSentOnTheNext) {
  Push();
  EXPECT_EQ(sender->oldest_unconfirmed_us(now + 5), 5);
  sender->Start(now);
  Push();
  Greet(0);
  EXPECT_EQ(Numbers(), (Numbered{1, 2}));
  EXPECT_EQ(sender->resent_frames(), 0u);
}

TEST_F(ReplicaSending, SilenceMakesANewConnectionAndSendsAllAgain) {
  sender->Start(now);
  Greet(0);
  Tick(2 * times.resend_after_us);
  EXPECT_TRUE(net.closed.empty()) << "nobody waits for anything";
  Push();
  Push();
  Tick(times.resend_after_us - 1);
  EXPECT_TRUE(net.closed.empty());
  Ack(1);
  Tick(times.resend_after_us - 1);
  EXPECT_TRUE(net.closed.empty()) << "something went forward";
  Ack(1);  // again the same: that is no progress
  Tick(1);
  EXPECT_EQ(net.closed, std::vector<ConnId>{ConnId{1}});
  EXPECT_TRUE(by_conn.empty());
  EXPECT_EQ(sender->Trouble(), "it does not answer");
  Tick(2 * times.reconnect.min_us);
  Greet(1);
  EXPECT_EQ(conn(), ConnId{2});
  EXPECT_EQ(by_conn.size(), 1u);
  EXPECT_EQ(Numbers(), Numbered{2});
  EXPECT_EQ(sender->Trouble(), "");
}

TEST_F(ReplicaSending, LargeFramesUnderWayAreProgress) {
  sender->Start(now);
  Greet(0);
  Push(0, 1 << 20);
  for (int i = 0; i < 5; ++i) {
    ++net.bulk_progress;
    Tick(times.resend_after_us - 1);
  }
  EXPECT_TRUE(net.closed.empty());
  Tick(times.resend_after_us);
  EXPECT_EQ(net.closed.size(), 1u);
}

TEST_F(ReplicaSending, AHelloThatIsLostIsSaidAgain) {
  sender->Start(now);
  Tick(times.resend_after_us);  // it never connected
  Tick(2 * times.reconnect.min_us);
  EXPECT_EQ(conn(), ConnId{2});
  sender->OnConnected(now);
  Tick(times.resend_after_us);
  EXPECT_EQ(net.closed, (std::vector<ConnId>{ConnId{1}, ConnId{2}}));
}

TEST_F(ReplicaSending, TheBackOffDoublesUpToItsBoundUntilSomethingIsConfirmed) {
  sender->Start(now);
  Push();
  for (const int64_t wait : {20'000, 40'000, 80'000, 160'000, 320'000, 640'000, 1'000'000, 1'000'000}) {
    const size_t before = net.endpoints.size();
    Greet(0);
    sender->OnDisconnect(now);
    Tick(wait - 1);
    ASSERT_EQ(net.endpoints.size(), before) << wait;
    Tick(wait / 2 + 1);
    ASSERT_EQ(net.endpoints.size(), before + 1) << wait;
  }
  Greet(0);
  Ack(1);
  sender->OnDisconnect(now);
  const size_t before = net.endpoints.size();
  Tick(2 * times.reconnect.min_us);
  EXPECT_EQ(net.endpoints.size(), before + 1);
}

TEST_F(ReplicaSending, ARestartedPeerRefusesAndIsAskedAgainAndAgain) {
  sender->Start(now);
  Greet(0);
  Push();
  sender->OnDisconnect(now);
  for (int i = 0; i < 3; ++i) {
    Tick(times.reconnect.max_us);
    sender->OnConnected(now);
    Say(wire::Refusal{0, Code::kProtocol, "this is server 4 of incarnation 41"});
    EXPECT_EQ(sender->Trouble(), "this is server 4 of incarnation 41");
  }
  EXPECT_EQ(net.endpoints.size(), 4u);
  EXPECT_TRUE(Numbers().empty());
  EXPECT_EQ(sender->confirmed(), 0u);
  EXPECT_GT(sender->unconfirmed_bytes(), 0u);
}

TEST_F(ReplicaSending, APeerThatSaysWhatCannotBeIsNotBelieved) {
  sender->Start(now);
  Greet(0);
  for (int i = 0; i < 3; ++i) Push();
  Ack(2);
  Reconnect(1);  // it has confirmed two
  EXPECT_FALSE(sender->ready());
  EXPECT_EQ(sender->Trouble(),
            "it says that it has 1 frames of this stream; it has confirmed 2 of the 3 sent");
  Tick(times.reconnect.max_us);
  Greet(4);  // more than there are
  EXPECT_FALSE(sender->ready());
  EXPECT_TRUE(Numbers().empty());
  EXPECT_EQ(sender->confirmed(), 2u);
}

TEST_F(ReplicaSending, AnErrorOrBytesThatAreNoMessageResetTheConnection) {
  sender->Start(now);
  Greet(0);
  Push();
  const Status error(Code::kProtocol, "an operation is cut off");
  Say(*wire::EncodeError(net.sent[conn()].back().header, error, pool));
  EXPECT_EQ(sender->Trouble(), "an operation is cut off");
  Tick(times.reconnect.max_us);
  Greet(0);
  wire::InFrame junk = net.Parsed(*wire::EncodeReplicaAck(1, std::vector<wire::SlotEntry>(2), 1, pool));
  junk.header.entry_count = 1;
  sender->OnMessage(junk, now);
  EXPECT_FALSE(sender->ready());
  EXPECT_EQ(sender->confirmed(), 0u);
  EXPECT_EQ(net.closed.size(), 2u);
}

TEST_F(ReplicaSending, AfterStopNothingHappensAnyMoreEvenFromInside) {
  sender->Start(now);
  Greet(0);
  Push();
  Push();
  stop_when_confirmed = true;
  Ack(1);
  EXPECT_EQ(net.closed, std::vector<ConnId>{ConnId{1}});
  EXPECT_TRUE(by_conn.empty());
  EXPECT_EQ(sender->unconfirmed_bytes(), 0u);
  Ack(2);
  sender->OnDisconnect(now);
  Tick(10 * times.resend_after_us);
  EXPECT_EQ(net.endpoints.size(), 1u);
  EXPECT_EQ(confirmations.size(), 1u);
}

class ReplicaReceiving : public ::testing::Test {
 protected:
  static wire::FrameHeader Header(uint64_t number) {
    wire::FrameHeader header;
    header.type = wire::FrameType::kReplicate;
    header.request_id = number;
    return header;
  }
  void Hold(uint64_t number, uint64_t version = 1, size_t bytes = 8) {
    wire::InFrame frame;
    frame.header = Header(number);
    frame.header.state_version = version;
    frame.storage = pool.Get(bytes);
    receiver.Hold(frame);
  }
  std::vector<wire::SlotEntry> Refused() {
    const wire::FramePtr ack = receiver.MakeAck(StateVersion{5}, pool);
    const Buffer bytes = wire::Flatten(*ack, pool);
    const wire::InFrame in = std::move(wire::Parse(bytes.bytes(), wire::kMaxBodyBytes, pool)).value();
    EXPECT_EQ(in.header.request_id, receiver.received());
    EXPECT_EQ(in.header.state_version, 5u);
    const auto refused = wire::DecodeReplicaAck(in.header, in.body());
    return {refused->begin(), refused->end()};
  }

  BufferPool pool;
  ReplicaReceiver receiver;
};

TEST_F(ReplicaReceiving, OnlyTheNextNumberIsTaken) {
  EXPECT_EQ(receiver.Take(Header(2)), Verdict::kGap);
  EXPECT_EQ(receiver.Take(Header(1)), Verdict::kNext);
  EXPECT_EQ(receiver.Take(Header(1)), Verdict::kNext) << "asking changes nothing";
  receiver.Taken();
  EXPECT_EQ(receiver.Take(Header(1)), Verdict::kDuplicate);
  EXPECT_EQ(receiver.Take(Header(0)), Verdict::kDuplicate);
  EXPECT_EQ(receiver.Take(Header(2)), Verdict::kNext);
  EXPECT_EQ(receiver.Take(Header(~uint64_t{0})), Verdict::kGap);
  EXPECT_EQ(receiver.received(), 1u);
}

TEST_F(ReplicaReceiving, EarlyFramesAreHeldUntilTheirTurnAndTheirState) {
  Hold(3, 7);
  Hold(2, 1);
  EXPECT_FALSE(receiver.NextHeld(StateVersion{9})) << "the first is missing";
  receiver.Taken();
  auto second = receiver.NextHeld(StateVersion{6});
  ASSERT_TRUE(second);
  EXPECT_EQ(second->header.request_id, 2u);
  EXPECT_EQ(second->storage.size(), 8u);
  receiver.Taken();
  EXPECT_FALSE(receiver.NextHeld(StateVersion{6})) << "sent under state 7";
  EXPECT_TRUE(receiver.NextHeld(StateVersion{7}));
  receiver.Taken();
  EXPECT_EQ(receiver.received(), 3u);
  EXPECT_EQ(receiver.held_bytes(), 0u);
}

TEST_F(ReplicaReceiving, CopiesOfHeldFramesAndOldOnesTakeNoRoom) {
  Hold(2);
  const uint64_t one = receiver.held_bytes();
  Hold(2);
  EXPECT_EQ(receiver.held_bytes(), one);
  Hold(1);
  receiver.Taken();  // another copy of 1 came and was taken
  EXPECT_EQ(receiver.held_bytes(), one);
  Hold(1);
  EXPECT_EQ(receiver.held_bytes(), one);
}

TEST_F(ReplicaReceiving, WhatIsHeldIsBoundedAndTheEarliestStay) {
  constexpr uint64_t kMostHeldBytes = ShardBounds{}.most_held_bytes;
  const size_t third = kMostHeldBytes / 3;
  Hold(4, 1, third);
  Hold(5, 1, third);
  Hold(6, 1, third);  // three and their headers are too much
  EXPECT_LE(receiver.held_bytes(), kMostHeldBytes);
  Hold(2, 1, third);  // 5 makes room
  EXPECT_LE(receiver.held_bytes(), kMostHeldBytes);
  receiver.Taken();
  EXPECT_TRUE(receiver.NextHeld(StateVersion{1}));
  receiver.Taken();
  receiver.Taken();
  EXPECT_TRUE(receiver.NextHeld(StateVersion{1})) << "4 was held";
  receiver.Taken();
  EXPECT_FALSE(receiver.NextHeld(StateVersion{1})) << "5 was not";
}

TEST_F(ReplicaReceiving, RefusedSlotsAreNamedUntilSomethingOfThemIsTaken) {
  EXPECT_TRUE(Refused().empty());
  receiver.Refuse(SlotId{9}, 4);
  receiver.Refuse(SlotId{7}, 2);
  receiver.Refuse(SlotId{7}, 3);
  receiver.Taken();
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(Refused().size(), 2u);
    EXPECT_EQ(Refused()[0].slot, 7u);
    EXPECT_EQ(Refused()[0].number, 3u);
    EXPECT_EQ(Refused()[1].slot, 9u);
    receiver.Taken();
  }
  receiver.Accept(SlotId{7});
  ASSERT_EQ(Refused().size(), 1u);
  EXPECT_EQ(Refused()[0].slot, 9u);
}

}  // namespace
}  // namespace cairn::server
