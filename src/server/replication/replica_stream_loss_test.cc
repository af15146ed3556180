// Both ends of the stream between two shard threads over a network that loses, repeats, reorders and
// breaks.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/random.h"
#include "server/replication/replica_stream.h"
#include "server/replication/replica_stream_harness.h"

namespace cairn::server {
namespace {

using Verdict = ReplicaReceiver::Verdict;

// A third of the way through, the receiver begins to refuse slot 2; it learns of new states late.
class LossyRun : public ReplicaSender::Listener {
 public:
  static constexpr uint64_t kFrames = 300;
  static constexpr uint32_t kSlots = 4, kRefusedSlot = 2;

  explicit LossyRun(uint64_t seed) : random(seed), net(pool) {
    ReplicaRoute route;
    route.endpoint = {"peer", 1};
    sender = std::make_unique<ReplicaSender>(route, PeerLink::Times{}, net, pool, by_conn, *this);
    sender->Start(now);
  }
  void OnConfirmed(ReplicaSender&, uint64_t up_to, std::span<const wire::SlotEntry> refused,
                   int64_t) override {
    std::set<uint32_t> not_for;
    for (const wire::SlotEntry& entry : refused) not_for.insert(entry.slot);
    for (; counted < up_to; ++counted) {
      const uint64_t number = counted + 1;
      if (not_for.contains(SlotOf(number))) continue;
      EXPECT_TRUE(taken.contains(number)) << number << " counts as confirmed, and was refused";
    }
  }
  void Run() {
    for (int step = 0; step < 100'000 && sender->confirmed() < kFrames; ++step) Step();
    EXPECT_EQ(sender->confirmed(), kFrames);
    EXPECT_EQ(counted, kFrames);
    EXPECT_EQ(receiver.received(), kFrames);
    EXPECT_EQ(sender->unconfirmed_bytes(), 0u);
    EXPECT_GT(refusals, 0u);
    EXPECT_GT(sender->resent_frames(), 0u) << "the network was too good to show anything";
  }

 private:
  static uint32_t SlotOf(uint64_t number) { return static_cast<uint32_t>(number % kSlots); }
  static uint64_t VersionOf(uint64_t number) { return number / 50; }

  void Step() {
    now += static_cast<int64_t>(random.Below(20'000));
    if (sender->next_number() <= kFrames && random.Chance(0.5)) {
      AddOp(*sender, SlotOf(sender->next_number()));
      sender->Flush(VersionOf(sender->next_number()), now);
    }
    if (random.Chance(0.01)) ++receiver_version;
    const ConnId conn{net.endpoints.size()};
    if (by_conn.contains(conn) && greeted < conn.value && random.Chance(0.2)) {
      greeted = conn.value;
      sender->OnConnected(now);
    }
    // What has been sent leaves for the peer, or is lost, or comes twice.
    for (auto& [on, frames] : net.sent) {
      for (wire::InFrame& frame : frames) {
        if (random.Chance(0.1)) continue;
        if (random.Chance(0.1)) to_receiver.emplace_back(on, Copy(frame));
        to_receiver.emplace_back(on, std::move(frame));
      }
    }
    net.sent.clear();
    for (int i = 0; i < 2 && !to_receiver.empty(); ++i) {
      auto [on, frame] = Pick(to_receiver);
      Receive(on, frame);
    }
    if (!to_sender.empty()) {
      auto [on, frame] = Pick(to_sender);
      if (auto it = by_conn.find(on); it != by_conn.end()) it->second->OnMessage(frame, now);
    }
    if (random.Chance(0.002) && by_conn.contains(conn)) sender->OnDisconnect(now);
    sender->OnTick(now);
  }
  template <class Queue>
  typename Queue::value_type Pick(Queue& queue) {  // mostly in order
    const size_t at = random.Chance(0.8) ? 0 : random.Below(queue.size());
    auto item = std::move(queue[at]);
    queue.erase(queue.begin() + static_cast<ptrdiff_t>(at));
    return item;
  }
  wire::InFrame Copy(const wire::InFrame& frame) {
    wire::InFrame copy;
    copy.header = frame.header;
    copy.storage = pool.Get(frame.storage.size());
    std::copy(frame.body().begin(), frame.body().end(), copy.storage.data());
    return copy;
  }
  void Reply(ConnId on, const wire::Frame& frame) {
    if (!random.Chance(0.2)) to_sender.emplace_back(on, net.Parsed(frame));
  }
  void Receive(ConnId on, wire::InFrame& frame) {
    if (frame.header.type == wire::FrameType::kControl) {
      Reply(on, *receiver.MakeHelloReply(pool));
    } else if (receiver.Take(frame.header) == Verdict::kNext &&
               frame.header.state_version <= receiver_version) {
      Process(frame);
    } else if (receiver.Take(frame.header) != Verdict::kDuplicate) {
      receiver.Hold(frame);
    }
    while (auto held = receiver.NextHeld(StateVersion{receiver_version})) Process(*held);
    Reply(on, *receiver.MakeAck(StateVersion{receiver_version}, pool));
  }
  void Process(const wire::InFrame& frame) {
    wire::OpReader reader(frame.body());
    wire::OpView op;
    ASSERT_TRUE(reader.Next(&op));
    const uint64_t number = frame.header.request_id;
    ASSERT_EQ(number, receiver.received() + 1);
    if (op.header.slot == kRefusedSlot && number > kFrames / 3) {
      receiver.Refuse(SlotId{op.header.slot}, 2);
      ++refusals;
    } else {
      receiver.Accept(SlotId{op.header.slot});
      EXPECT_TRUE(taken.insert(number).second) << number << " was taken twice";
    }
    receiver.Taken();
  }

  Random random;
  BufferPool pool;
  StreamNetwork net;
  SendersByConn by_conn;
  std::unique_ptr<ReplicaSender> sender;
  ReplicaReceiver receiver;
  uint64_t receiver_version = 0, greeted = 0, counted = 0, refusals = 0;
  std::set<uint64_t> taken;
  std::deque<std::pair<ConnId, wire::InFrame>> to_receiver, to_sender;
  int64_t now = 0;
};

TEST(StreamOverABadNetwork, EveryFrameIsTakenOnceInOrderAndRefusedOnesNeverCount) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    LossyRun(seed).Run();
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace cairn::server
