// Rounds in one and two phases under every mixture of frame orders, copies and deaths that a seed
// gives: each live worker gets all of its answers, and without deaths the sums are exact.
#include <deque>
#include <set>

#include "base/random.h"
#include "server/shard/shard_harness.h"

namespace cairn::server {
namespace {

using Slots = std::vector<uint32_t>;
constexpr uint32_t kWorkers = 4;
constexpr uint64_t kRounds = 6;
constexpr int kMostSteps = 20'000;

// What all workers do in a round follows from its number.
bool InTwoPhases(uint64_t round) { return round % 3 != 0; }
bool Skips(uint64_t round) { return round == 2; }
double ScaleOf(uint64_t round) { return round % 2 == 0 ? 0.5 : 1.0; }

class Workers {
 public:
  Workers(uint64_t seed, bool deterministic, bool deaths) : random_(seed), deaths_(deaths), h_(kWorkers) {
    TableSpec spec = ShardHarness::Sparse(Mode::kSync);
    spec.deterministic = deterministic;
    table_ = h_.AddTable(spec);
    h_.SkipAnswers();
    for (uint32_t rank = 0; rank < kWorkers; ++rank) StartRound(rank);
  }

  void Run() {
    for (int step = 0; step < kMostSteps && !Finished(); ++step) {
      const auto rank = static_cast<uint32_t>(random_.Below(kWorkers));
      Worker& worker = workers_[rank];
      if (worker.dead || worker.round == kRounds) continue;
      if (deaths_ && rank != 0 && random_.Chance(0.01)) {
        worker.dead = true;
        h_.Kill(rank);
      } else if (!worker.to_send.empty()) {
        const size_t at = random_.Below(worker.to_send.size());
        const wire::FramePtr frame = worker.to_send[at];
        h_.Deliver(rank, frame);
        if (!random_.Chance(0.3)) worker.to_send.erase(worker.to_send.begin() + static_cast<long>(at));
      }
      for (uint32_t other = 0; other < kWorkers; ++other) Listen(other);
    }
  }
  bool Finished() const {
    for (const Worker& worker : workers_)
      if (!worker.dead && worker.round < kRounds) return false;
    return true;
  }
  float Stored(uint32_t slot) const { return h_.Stored(table_, slot).value_or(0); }
  float expected(uint32_t slot) const { return expected_[slot]; }
  std::string Where() const {
    std::string text;
    for (const Worker& worker : workers_) {
      text += worker.dead ? " dead"
                          : " " + std::to_string(worker.round) + (worker.decides ? "b" : "a") + ":" +
                                std::to_string(worker.unanswered.size());
    }
    return text;
  }

 private:
  struct Worker {
    uint64_t round = 0;
    bool decides = false;
    bool dead = false;
    std::vector<wire::FramePtr> to_send;
    std::set<uint64_t> unanswered;
  };

  void Queue(uint32_t rank, wire::FramePtr frame) {
    workers_[rank].unanswered.insert(frame->header().request_id);
    workers_[rank].to_send.push_back(std::move(frame));
  }
  // Parts in frames of their own, and the mark, which may overtake them.
  void StartRound(uint32_t rank) {
    Worker& worker = workers_[rank];
    worker.decides = false;
    worker.to_send.clear();
    if (worker.round == kRounds) return;
    const uint16_t flags = InTwoPhases(worker.round) ? wire::kParamTwoPhase : 0;
    Slots named;
    for (uint32_t slot = 0; slot < ShardHarness::kOwned; ++slot) {
      if (!random_.Chance(0.6)) continue;
      named.push_back(slot);
      const auto value = static_cast<float>(random_.Below(8));
      Queue(rank, h_.Contribute(rank, table_, worker.round, {{slot, value}}, {.flags = flags}));
      const double scale = InTwoPhases(worker.round) ? ScaleOf(worker.round) : 1.0;
      if (!Skips(worker.round)) expected_[slot] -= static_cast<float>(scale) * value / kWorkers;
    }
    Queue(rank, h_.Rows(rank, wire::FrameType::kDone, table_, Round{worker.round}, {},
                        {.done = named, .flags = flags}));
  }
  void Advance(uint32_t rank) {
    Worker& worker = workers_[rank];
    if (InTwoPhases(worker.round) && !worker.decides) {
      worker.decides = true;
      worker.to_send.clear();
      const uint16_t skip = Skips(worker.round) ? wire::kParamSkip : 0;
      Queue(rank, h_.Rows(rank, wire::FrameType::kDone, table_, Round{worker.round}, {},
                          {.done = Slots{},
                           .flags = static_cast<uint16_t>(wire::kParamDecide | skip),
                           .scale = ScaleOf(worker.round)}));
      return;
    }
    ++worker.round;
    StartRound(rank);
  }
  void Listen(uint32_t rank) {
    Worker& worker = workers_[rank];
    while (auto answer = h_.Next(rank)) {
      const wire::FrameHeader& header = answer->header;
      if (worker.dead || worker.unanswered.erase(header.request_id) == 0) continue;  // or a copy's
      ASSERT_EQ(header.type, wire::FrameType::kRoundReply) << ShardHarness::Describe(answer);
      ASSERT_EQ(header.flags & wire::kFlagRefused, 0) << ShardHarness::Describe(answer);
      const bool report = (header.flags & wire::kFlagReport) != 0;
      ASSERT_EQ(report, InTwoPhases(worker.round) && !worker.decides);
      if (worker.unanswered.empty()) Advance(rank);
    }
  }

  Random random_;
  const bool deaths_;
  ShardHarness h_;
  TableId table_;
  Worker workers_[kWorkers];
  float expected_[ShardHarness::kOwned] = {};
};

TEST(RoundOrderTest, EveryOrderOfFramesGivesTheSameSums) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Workers workers(seed, seed % 2 == 0, /*deaths=*/false);
    workers.Run();
    ASSERT_TRUE(workers.Finished()) << workers.Where();
    for (uint32_t slot = 0; slot < ShardHarness::kOwned; ++slot)
      EXPECT_EQ(workers.Stored(slot), workers.expected(slot));
  }
}

TEST(RoundOrderTest, WhoeverDiesTheOthersGoOn) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Workers workers(seed, seed % 2 == 0, /*deaths=*/true);
    workers.Run();
    ASSERT_TRUE(workers.Finished()) << workers.Where();
  }
}

}  // namespace
}  // namespace cairn::server
