// Second times and limits of replication: what is copied, compared, reported and refused once more.
#include <algorithm>
#include <map>
#include <set>

#include "server/shard/owners_harness.h"

namespace cairn::server {
namespace {

TableSpec AsyncRows() { return ShardHarness::Sparse(Mode::kAsync); }

// The kinds of operations that were carried, by slot.
struct Carried {
  explicit Carried(OwnersHarness& h) {
    h.on_operation = [this](uint32_t to, const wire::OpView& op) {
      ops[{to, op.header.kind}].push_back(op.header.slot);
    };
  }
  size_t Count(uint32_t to, wire::OpKind kind) { return ops[{to, kind}].size(); }
  std::map<std::pair<uint32_t, wire::OpKind>, std::vector<uint32_t>> ops;
};

TEST(ReplicationDetails, BackupsThatDoNotKeepUpStopPushesUntilTheyAreDropped) {
  ShardOptions options;
  options.most_unconfirmed_bytes = 100;
  OwnersHarness h(2, 1, options);
  const TableId table = h.AddTable(AsyncRows());
  h.Carry();
  h.stalled = {1};
  h[0].Deliver(0, h[0].Push(0, table, {{0, 1, 1}}));
  EXPECT_EQ(h[0].Answer(0), "") << "held";
  h[0].Deliver(0, h[0].Push(0, table, {{0, 1, 2}}));
  const std::string answer = h[0].Answer(0);
  EXPECT_TRUE(
      answer.starts_with("error resource_exhausted: server 0 thread 0 waits for server 1 thread 0 at host:2, "
                         "which has not confirmed "))
      << answer;
  for (wire::SlotOwner& owner : h.state.slots) owner.backups.clear();
  h.Publish();
  EXPECT_EQ(h[0].Answer(0), "applied") << "the first";
  h[0].Deliver(0, h[0].Push(0, table, {{0, 1, 2}}));
  EXPECT_EQ(h[0].Answer(0), "applied") << "what it still lacks delays nobody";
}

TEST(ReplicationDetails, ARoundsValuesWaitForTheLastSlotToo) {
  for (uint32_t late = 1; late < OwnersHarness::kSlots; ++late) {
    OwnersHarness h(3, 2);
    const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kSync));
    for (uint32_t slot = 0; slot < OwnersHarness::kSlots; ++slot)
      std::erase_if(h.state.slots[slot].backups,
                    [&](const auto& backup) { return backup.server != (slot == late ? 2 : 1); });
    h.Publish();
    h.Carry();
    h.stalled = {2};
    for (uint32_t rank : {0u, 1u}) {
      h[0].Deliver(rank, h[0].Contribute(rank, table, 0, {{0, 2}},
                                         {.done = std::vector<uint32_t>{0}, .pull_after = true}));
    }
    h.Carry();
    EXPECT_EQ(h[0].Answer(0), "") << "slot " << late << " is closed on one owner only";
    h.stalled.clear();
    h.Carry();
    EXPECT_EQ(h[0].Answer(0), "values -2");
  }
}

TEST(ReplicationDetails, AnAnswerThatIsHeldIsSpokenOfAfterItsOwnSecondAndOnceInEach) {
  OwnersHarness h(2, 1);
  const TableId table = h.AddTable(AsyncRows());
  h.Carry();
  h.nodes[0]->now = h.now = 60'000'000;
  h.stalled = {1};
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  h[0].shard->OnTick(h.now += 100'000);
  EXPECT_EQ(h[0].Answer(0), "");
  const std::string held = "held for server 1 thread 0 at host:2 to confirm";
  h[0].shard->OnTick(h.now += 900'000);
  EXPECT_EQ(h[0].Answer(0), held);
  h[0].shard->OnTick(h.now += 999'999);
  EXPECT_EQ(h[0].Answer(0), "") << "not at every tick";
  h[0].shard->OnTick(h.now += 1);
  EXPECT_EQ(h[0].Answer(0), held);
}

TEST(ReplicationDetails, WhoWaitsForABackupThatCanNotFollowHearsThat) {
  OwnersHarness h(2, 1);
  const TableId table = h.AddTable(AsyncRows());
  wire::ClusterState other = h.state;
  other.version = other.version.Next();
  other.slots[0].backups.clear();
  h[1].shard->OnState(std::make_shared<wire::ClusterState>(other), h.now);  // so it refuses the slot
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  h.Carry();
  h[0].shard->OnTick(h.now += 1'000'000);
  EXPECT_EQ(h[0].Answer(0), "held for the scheduler to drop a backup that can't follow");
}

TEST(ReplicationDetails, ASumThatIsHandedOverIsKeptByWhoHandedItOver) {
  OwnersHarness h(2, 1);
  const TableId table = h.AddTable(ShardHarness::Sparse(Mode::kSync));
  for (uint32_t rank : {0u, 1u}) {
    h[0].Deliver(rank, h[0].Contribute(rank, table, 0, {{0, 2}},
                                       {.done = std::vector<uint32_t>{0}, .flags = wire::kParamTwoPhase}));
  }
  h.Carry();
  for (wire::SlotOwner& owner : h.state.slots)
    owner = {1, 0, 2, h.state.version.Next(), wire::kNoServer, {{0, 0, true, h.state.version.Next()}}};
  h.Publish();
  h.Carry();
  for (uint32_t rank : {0u, 1u}) {
    h[1].Deliver(rank, h[1].Rows(rank, wire::FrameType::kDone, table, Round{0}, {},
                                 {.done = std::vector<uint32_t>{}, .flags = wire::kParamDecide}));
  }
  h.Carry();
  EXPECT_EQ(h[1].Answer(0), "closed");
  EXPECT_TRUE(h.News(1, wire::SlotNews::kDiverged).empty());
  EXPECT_EQ(h[0].Stored(table, 0), -2.0f);
}

TEST(ReplicationDetails, ACopyThatIsGivenUpMakesRoomForTheNext) {
  ShardOptions options;
  options.copy_chunk_bytes = 16;
  OwnersHarness h(2, 0, options);
  const TableId table = h.AddTable(AsyncRows());
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  h.AddBackup(1);
  h.CarryOnce();
  h.CarryOnce();  // a piece of the first copy is under way
  for (wire::SlotOwner& owner : h.state.slots) owner.backups.clear();
  h.Publish();
  h.AddBackup(1);
  h[0].shard->OnTick(h.now += 100'000);
  h.Carry();
  EXPECT_EQ(h.News(0, wire::SlotNews::kCaughtUp).size(), OwnersHarness::kSlots);
}

TEST(ReplicationDetails, AfterALargeCopyThereIsAPauseAsLongAsItTook) {
  for (const bool large : {false, true}) {
    ShardOptions options;
    if (large) options.bounds.small_copy_bytes = 0;
    OwnersHarness h(2, 0, options);
    (void)h.AddTable(AsyncRows());
    Carried carried(h);
    h.AddBackup(1);
    h.CarryOnce();  // the connection
    h.stalled = {0};
    h.Carry();
    ASSERT_EQ(carried.Count(1, wire::OpKind::kBegin), 1u);
    h.stalled.clear();
    h.now += 1'000'000;  // so long the first copy took
    h.Carry();
    EXPECT_EQ(carried.Count(1, wire::OpKind::kBegin), large ? 1u : OwnersHarness::kSlots);
    if (!large) continue;
    h[0].shard->OnTick(h.now += 900'000);
    h.Carry();
    EXPECT_EQ(carried.Count(1, wire::OpKind::kBegin), 1u);
    h[0].shard->OnTick(h.now += 100'000);
    h.Carry();
    EXPECT_GT(carried.Count(1, wire::OpKind::kBegin), 1u);
  }
}

TEST(ReplicationDetails, NoCopyGoesIntoAStreamThatDoesNotMove) {
  ShardOptions options;
  options.bounds.most_before_copy_bytes = 10;
  OwnersHarness h(2, 1, options);
  const TableId table = h.AddTable(AsyncRows());
  h.Carry();
  Carried carried(h);
  h.stalled = {0};  // nothing is confirmed
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  h.state.slots[1].backups[0] = {1, 0, false, h.state.version.Next()};
  h.Publish();
  h.Carry();
  EXPECT_EQ(carried.Count(1, wire::OpKind::kBegin), 0u);
  h.stalled.clear();
  h.Carry();
  EXPECT_EQ(carried.Count(1, wire::OpKind::kBegin), 1u);
}

TEST(ReplicationDetails, ASlotThatIsHandedOverIsNotCopiedByTheOneWhoLeaves) {
  OwnersHarness h(3, 1);
  (void)h.AddTable(AsyncRows());
  h.Carry();
  Carried carried(h);
  for (wire::SlotOwner& owner : h.state.slots) {
    owner.heir = 1;
    owner.backups.push_back({2, 0, false, h.state.version.Next()});
  }
  h.Publish();
  h.Carry();
  EXPECT_EQ(carried.Count(2, wire::OpKind::kBegin), 0u);
}

TEST(ReplicationDetails, AnHeirIsComparedAgainWhenItIsNamedAgain) {
  OwnersHarness h(2, 1);
  const TableId table = h.AddTable(AsyncRows());
  h.Carry();
  Carried carried(h);
  const auto name = [&](uint16_t heir) {
    for (wire::SlotOwner& owner : h.state.slots) owner.heir = heir;
    h.Publish();
    h.Carry();
  };
  name(1);
  EXPECT_EQ(carried.Count(1, wire::OpKind::kHash), OwnersHarness::kSlots);
  name(wire::kNoServer);
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  h.Carry();
  EXPECT_EQ(h[0].Answer(0), "applied") << "it goes on meanwhile";
  name(1);
  EXPECT_EQ(carried.Count(1, wire::OpKind::kHash), 2 * OwnersHarness::kSlots);
  EXPECT_EQ(h.News(0, wire::SlotNews::kHandedOver).size(), OwnersHarness::kSlots);
}

TEST(ReplicationDetails, ALargeSlotIsHandedOverWithoutBeingCompared) {
  ShardOptions options;
  options.bounds.most_compared_bytes = 10;
  OwnersHarness h(2, 1, options);
  const TableId table = h.AddTable(AsyncRows());
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  h.Carry();
  Carried carried(h);
  for (wire::SlotOwner& owner : h.state.slots) owner.heir = 1;
  h.Publish();
  h.Carry();
  EXPECT_EQ(h.News(0, wire::SlotNews::kHandedOver).size(), OwnersHarness::kSlots);
  const auto& hashed = carried.ops[{1, wire::OpKind::kHash}];
  EXPECT_EQ(std::count(hashed.begin(), hashed.end(), 0u), 0) << "slot 0 alone has more than 10 bytes";
  EXPECT_EQ(hashed.size(), OwnersHarness::kSlots - 1);
}

TEST(ReplicationDetails, EverySlotIsComparedInItsTurn) {
  OwnersHarness h(2, 1);
  (void)h.AddTable(AsyncRows());
  h.Carry();
  Carried carried(h);
  for (uint32_t turn = 1; turn <= OwnersHarness::kSlots; ++turn) {
    h[0].shard->OnTick(h.now += 5'000'000);
    h[0].shard->OnTick(h.now += 100'000);
    h.Carry();
    EXPECT_EQ(carried.Count(1, wire::OpKind::kHash), turn) << "one in so long";
  }
  const auto& hashed = carried.ops[{1, wire::OpKind::kHash}];
  EXPECT_EQ(std::set<uint32_t>(hashed.begin(), hashed.end()).size(), OwnersHarness::kSlots);
}

TEST(ReplicationDetails, OnlySlotsThatWaitForASlowBackupAreReported) {
  OwnersHarness h(2, 1);
  const TableId table = h.AddTable(AsyncRows());
  h.Carry();
  h.stalled = {1};
  h[0].Deliver(0, h[0].Push(0, table, {{3, 2, 1}}));
  h[0].shard->TakeNewsFlag();
  for (int i = 0; i < 99; ++i) h[0].shard->OnTick(h.now += 100'000);
  EXPECT_FALSE(h[0].shard->TakeNewsFlag());
  h[0].shard->OnTick(h.now += 100'000);
  EXPECT_TRUE(h[0].shard->TakeNewsFlag()) << "worth a report at once";
  const auto news = h.News(0, wire::SlotNews::kSlow);
  ASSERT_EQ(news.size(), 1u);
  EXPECT_EQ(news[0].slot, 3u);
}

TEST(ReplicationDetails, ABackupThatIsNeverReachedIsReportedAsSlow) {
  OwnersHarness h(2, 0);
  (void)h.AddTable(AsyncRows());
  for (int i = 0; i < 300; ++i) h[0].shard->OnTick(h.now += 100'000);
  h.gone.insert(1);
  h.AddBackup(1);
  for (int i = 0; i < 99; ++i) h[0].shard->OnTick(h.now += 100'000);
  EXPECT_TRUE(h.News(0, wire::SlotNews::kSlow).empty());
  h[0].shard->OnTick(h.now += 100'000);
  EXPECT_EQ(h.News(0, wire::SlotNews::kSlow).size(), OwnersHarness::kSlots);
  h[0].shard->OnTick(h.now += 20'000'000);
  EXPECT_TRUE(h.News(0, wire::SlotNews::kSlow).empty()) << "this thread itself did not run";
}

// Keys count with the values.
TEST(ReplicationDetails, AnOperationThatIsTooLargeEndsInACopy) {
  std::vector<std::string> lines;
  ShardOptions options;
  options.bounds.most_operation_bytes = 10;
  options.log = [&](const std::string& line) { lines.push_back(line); };
  OwnersHarness h(2, 1, options);
  const TableId table = h.AddTable(AsyncRows());
  h.Carry();
  Carried carried(h);
  h[0].shard->TakeNewsFlag();
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  EXPECT_TRUE(h[0].shard->TakeNewsFlag());
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(lines[0].starts_with("partition 0: an operation is too large")) << lines[0];
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 2}}));
  h.Carry();
  EXPECT_EQ(carried.Count(1, wire::OpKind::kPush), 0u);
  EXPECT_EQ(h[0].Answer(0), "") << "on one owner only";
  EXPECT_EQ(h.News(0, wire::SlotNews::kDiverged).size(), 1u);
}

TEST(ReplicationDetails, WhoLacksAnOperationGetsNoneOfThoseBehindIt) {
  ShardOptions options;
  options.bounds.most_operation_bytes = 1000;
  OwnersHarness h(2, 1, options);
  const TableId dense = h.AddTable(DenseHarness::Dense(Mode::kAsync));
  const TableId rows = h.AddTable(AsyncRows());
  h.Carry();
  Carried carried(h);
  h[0].Deliver(0, h[0].PushDense(0, dense, {{0, 2, 1}}));  // too large
  h[0].Deliver(0, h[0].Push(0, rows, {{0, 2, 2}, {1, 2, 1}}));
  h.Carry();
  EXPECT_EQ((carried.ops[{1, wire::OpKind::kPush}]), std::vector<uint32_t>{1});
}

TEST(ReplicationDetails, WhoIsMadeABackupAgainHasNothingUntilItIsCopiedTo) {
  OwnersHarness h(2, 1);
  const TableId table = h.AddTable(AsyncRows());
  h[0].Deliver(0, h[0].Push(0, table, {{0, 2, 1}}));
  h.Carry();
  EXPECT_EQ(h[1].shard->Received(SlotId{0}), Position::Of(1, 1));
  h.stalled = {1};
  h.state.slots[0].backups[0] = {1, 0, false, h.state.version.Next()};
  h.Publish();
  EXPECT_EQ(h[1].shard->Received(SlotId{0}), Position{});
  EXPECT_EQ(h[1].shard->Received(SlotId{1}), Position::Of(1, 0));
}

TEST(ReplicationDetails, ABackupOnAnotherThreadIsAnothers) {
  OwnersHarness h(2, 1);
  h.state.slots[0].backups[0].thread = 1;
  h.Publish();
  EXPECT_EQ(h[1].shard->RoleOf(SlotId{0}), Shard::SlotRole::kNone);
  EXPECT_EQ(h[1].shard->RoleOf(SlotId{1}), Shard::SlotRole::kBackup);
}

// A primary's words by hand, to server 1.
struct ByHand {
  explicit ByHand(OwnersHarness& harness) : h(harness) {
    h.stalled = {0, 1};
    number = Greet(Hello());
  }
  static wire::ReplicaHello Hello() {
    wire::ReplicaHello hello;
    hello.cluster_id = "test";
    hello.from_incarnation = Incarnation{1};
    hello.to_incarnation = Incarnation{2};
    return hello;
  }
  uint64_t Greet(const wire::ReplicaHello& hello) {
    h[1].Control(ConnId{77}, hello);
    const auto reply = h[1].NextOn(ConnId{77});
    const auto greeted = wire::DecodeControl(reply->header, reply->body());
    const auto ack = h[1].NextOn(ConnId{77});
    EXPECT_TRUE(ack && ack->header.type == wire::FrameType::kReplicaAck) << "what is refused is named in it";
    return std::get<wire::ReplicaHelloReply>(*greeted).received;
  }
  // Whether slot 0 was refused.
  bool Refused(wire::OpHeader header, std::span<const std::byte> payload = {},
               const wire::PushParams* params = nullptr, std::span<const RowKey> keys = {}) {
    header.epoch = 1;
    wire::OpBatch batch(h[1].pool);
    batch.Add(header, params, keys, {}, payload);
    h[1].Deliver(ConnId{77}, *batch.Take(++number, 1, h.state.version.value));
    const auto ack = h[1].NextOn(ConnId{77});
    EXPECT_TRUE(ack && ack->header.request_id == number);
    const auto refused = wire::DecodeReplicaAck(ack->header, ack->body());
    return refused.ok() && !refused->empty();
  }
  static wire::OpHeader Op(wire::OpKind kind, uint64_t index, uint64_t a = 0, TableId table = {}) {
    wire::OpHeader header;
    header.kind = kind;
    header.index = header.committed = index;
    header.a = a;
    header.table = table.value;
    return header;
  }
  OwnersHarness& h;
  uint64_t number = 0;
};

TEST(ReplicationDetails, ACopyHasAllItsPiecesInOrderAndIsForTheBackupOfNow) {
  using enum wire::OpKind;
  const std::vector<std::byte> piece(8);
  const auto begun = [&](OwnersHarness& h, ByHand& hand) {
    EXPECT_FALSE(hand.Refused(ByHand::Op(kBegin, 0, h.state.slots[0].backups[0].added.value)));
  };
  {
    OwnersHarness h(2, 1);
    ByHand hand(h);
    EXPECT_TRUE(hand.Refused(ByHand::Op(kBegin, 0, h.state.slots[0].backups[0].added.value - 1)));
  }
  {
    OwnersHarness h(2, 1);
    ByHand hand(h);
    begun(h, hand);
    EXPECT_FALSE(hand.Refused(ByHand::Op(kChunk, 0, 0), piece));
    EXPECT_TRUE(hand.Refused(ByHand::Op(kChunk, 0, 2), piece)) << "the second is missing";
  }
  {
    std::vector<std::string> lines;
    ShardOptions options;
    options.log = [&](const std::string& line) { lines.push_back(line); };
    OwnersHarness h(2, 1, options);
    ByHand hand(h);
    begun(h, hand);
    std::vector<std::byte> nothing(16);  // no table, no worker
    EXPECT_FALSE(hand.Refused(ByHand::Op(kChunk, 0, 0), nothing));
    EXPECT_TRUE(hand.Refused(ByHand::Op(kEnd, 0, 2))) << "of two pieces one came";
    EXPECT_EQ(h[1].shard->Received(SlotId{0}), Position{});
    EXPECT_TRUE(lines.empty()) << "it was not whole before either";
  }
}

TEST(ReplicationDetails, WhatIsNoOperationOfItsTableIsRefusedInWords) {
  std::vector<std::string> lines;
  ShardOptions options;
  options.log = [&](const std::string& line) { lines.push_back(line); };
  const float value = 1;
  const wire::PushParams params;
  for (const bool close : {true, false}) {
    lines.clear();
    OwnersHarness h(2, 1, options);
    const TableId table = h.AddTable(AsyncRows());
    ByHand hand(h);
    if (close) {
      EXPECT_TRUE(hand.Refused(ByHand::Op(wire::OpKind::kClose, 1, 0, table), std::vector<std::byte>(256)))
          << "it has no rounds";
    } else {
      const RowKey elsewhere = ShardHarness::KeyIn(1);
      EXPECT_TRUE(hand.Refused(ByHand::Op(wire::OpKind::kPush, 1, 10, table),
                               std::as_bytes(std::span(&value, 1)), &params, {&elsewhere, 1}))
          << "a key of another slot";
    }
    EXPECT_EQ(lines,
              std::vector<std::string>{"partition 0 has to be copied here again: an operation does not fit"});
    EXPECT_EQ(h[1].shard->Received(SlotId{0}), Position{});
  }
}

TEST(ReplicationDetails, OwnersThatHaveNotTheSameTablesAreNotCompared) {
  OwnersHarness h(2, 1);
  (void)h.AddTable(AsyncRows());
  ByHand hand(h);
  wire::OpHeader hash = ByHand::Op(wire::OpKind::kHash, 0, h[1].shard->ContentHash(SlotId{0}) + 1);
  hash.b = 12345;
  EXPECT_FALSE(hand.Refused(hash));
}

TEST(ReplicationDetails, AReplicasHelloIsForOneThreadOfOneCluster) {
  OwnersHarness h(2, 1);
  const auto told = [&](const wire::ReplicaHello& hello) {
    h[1].Control(ConnId{78}, hello);
    return ShardHarness::Describe(h[1].NextOn(ConnId{78}));
  };
  wire::ReplicaHello hello = ByHand::Hello();
  hello.to_thread = 1;
  EXPECT_TRUE(told(hello).starts_with("refusal protocol: server 1 thread 0: is thread 0 of incarnation 2"));
  hello = ByHand::Hello();
  hello.cluster_id = "other";
  EXPECT_TRUE(
      told(hello).starts_with("refusal protocol: server 1 thread 0: belongs to cluster test, not other"));
  hello = ByHand::Hello();
  hello.from_incarnation = h.state.next_incarnation;
  EXPECT_TRUE(told(hello).starts_with("refusal unavailable"));
  hello.from_incarnation = Incarnation{9};
  EXPECT_TRUE(told(hello).starts_with("refusal retired"));
  EXPECT_EQ(told(ByHand::Hello()), "ReplicaHelloReply");
}

TEST(ReplicationDetails, AnOldConnectionThatEndsTakesNothingFromTheNewOne) {
  OwnersHarness h(2, 1);
  ByHand hand(h);
  h[1].Control(ConnId{78}, ByHand::Hello());
  h[1].shard->OnDisconnect(ConnId{77}, h.now);
  h[1].SkipAnswers();
  h.Publish();
  const auto ack = h[1].NextOn(ConnId{78});
  EXPECT_TRUE(ack && ack->header.type == wire::FrameType::kReplicaAck);
}

TEST(ReplicationDetails, AServerThatIsGoneIsNoLongerListenedTo) {
  OwnersHarness h(2, 1);
  ByHand hand(h);
  h.Fail(0, 1);
  h[1].SkipAnswers();
  wire::OpBatch batch(h[1].pool);
  batch.Add(ByHand::Op(wire::OpKind::kCommit, 0), nullptr, {}, {}, {});
  h[1].Deliver(ConnId{77}, *batch.Take(hand.number + 1, 1, h.state.version.value));
  EXPECT_TRUE(ShardHarness::Describe(h[1].NextOn(ConnId{77})).starts_with("refusal protocol"));
}

}  // namespace
}  // namespace cairn::server
