// Frames whose fields and bytes lie: whatever comes, the shard answers or hangs up, and lives.
#include "base/random.h"
#include "server/shard/shard_harness.h"

namespace cairn::server {
namespace {

class Damage {
 public:
  explicit Damage(uint64_t seed) : random_(seed), h_(2) {
    TableSpec dense;
    dense.name = "dense";
    dense.size = 5 * 1024;
    tables_.push_back(h_.AddTable(dense));
    dense.mode = Mode::kSync;
    tables_.push_back(h_.AddTable(dense));
    tables_.push_back(h_.AddTable(ShardHarness::Sparse(Mode::kAsync)));
    TableSpec sync = ShardHarness::Sparse(Mode::kSync);
    tables_.push_back(h_.AddTable(sync));
    sync.deterministic = true;
    tables_.push_back(h_.AddTable(sync));
  }

  void Step() {
    const auto rank = static_cast<uint32_t>(random_.Below(2));
    wire::FramePtr whole = Valid(rank);
    Buffer bytes = wire::Flatten(*whole, h_.pool);
    wire::InFrame frame;
    std::memcpy(&frame.header, bytes.data(), sizeof(frame.header));
    const size_t body = bytes.size() - sizeof(frame.header);
    frame.storage = h_.pool.Get(body);
    std::memcpy(frame.storage.data(), bytes.data() + sizeof(frame.header), body);
    if (random_.Chance(0.5)) DamageHeader(frame.header);
    if (random_.Chance(0.5) && body > 0) DamageBody(frame.storage);
    h_.shard->OnMessage(h_.conns[rank], frame, h_.now);
    h_.now += 100'000;
    h_.shard->OnTick(h_.now);
    if (!h_.net.closed.empty()) {
      h_.net.closed.clear();
      h_.Connect(rank);
    }
    h_.net.sent.clear();
  }

 private:
  wire::FramePtr Valid(uint32_t rank) {
    const TableId table = tables_[random_.Below(tables_.size())];
    const auto slot = static_cast<uint32_t>(random_.Below(4));
    const uint64_t round = random_.Below(4);
    switch (random_.Below(8)) {
      case 5:
        return h_.Contribute(rank, table, round, {{slot, 1.0f}},
                             {.done = std::vector<uint32_t>{slot}, .flags = wire::kParamTwoPhase});
      case 6:
        return h_.Rows(rank, wire::FrameType::kDone, table, Round{round}, {{slot}},
                       {.done = std::vector<uint32_t>{}, .pull_after = true, .flags = wire::kParamDecide});
      case 7:
        return h_.Rows(rank, wire::FrameType::kDone, table, Round{round}, {},
                       {.done = std::vector<uint32_t>{}, .flags = wire::kParamJoined});
      case 0: return h_.Push(rank, table, {{slot, 1.0f, 1 + random_.Below(3)}});
      case 1: return h_.Give(rank, table, round, slot, 1.0f);
      case 2:
        return h_.Contribute(rank, table, round, {{1, 1.0f}, {3, 2.0f}},
                             {.done = std::vector<uint32_t>{1, 3}, .pull_after = true});
      case 3: return h_.Done(rank, table, round);
      default: return h_.Pull(rank, table, {slot}, random_.Chance(0.5) ? std::optional(round) : std::nullopt);
    }
  }
  void DamageHeader(wire::FrameHeader& header) {
    switch (random_.Below(7)) {
      case 0: header.table = static_cast<uint32_t>(random_.Below(8)); break;
      case 1: header.entry_count = static_cast<uint32_t>(random_.Next()); break;
      case 2: header.key_count = static_cast<uint32_t>(random_.Below(5)); break;
      case 3: header.round = random_.Next(); break;
      case 4: header.flags ^= static_cast<uint16_t>(1u << random_.Below(8)); break;
      case 5: header.type = static_cast<wire::FrameType>(random_.Below(12)); break;
      default: header.request_id = random_.Below(4); break;
    }
  }
  void DamageBody(Buffer& body) {
    for (uint64_t n = 1 + random_.Below(4); n > 0; --n) {
      const size_t at = random_.Below(body.size());
      body.data()[at] = random_.Chance(0.5) ? std::byte{0} : static_cast<std::byte>(random_.Next());
    }
  }

  Random random_;
  ShardHarness h_;
  std::vector<TableId> tables_;
};

TEST(DamagedFramesTest, NeverBringAShardDown) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Damage damage(seed);
    for (int step = 0; step < 2000; ++step) damage.Step();
  }
}

}  // namespace
}  // namespace cairn::server
