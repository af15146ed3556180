// Rounds and pushes of a job as they go by, out of what the scheduler says of its servers now and then.
// Servers count from their start, and a scheduler that was started again has not heard them yet: the numbers
// never fall, and the rate is that of the rounds, not of the scheduler's hearing of them. No clock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace cairn::cluster {

struct ServerCounts {
  uint64_t incarnation = 0, rounds = 0, pushes = 0;
};

class JobCounts {
 public:
  static constexpr int64_t kRateWindowMs = 5'000;  // servers report every second: less would only show that

  struct Totals {
    uint64_t rounds = 0, pushes = 0;  // rounds: of the server that has closed the most
    double rounds_per_s = 0;
  };
  Totals Next(const std::vector<ServerCounts>& servers, int64_t now_ms);
  // Something counted since the last answer went with a server: the numbers are what is known.
  bool incomplete() const { return rounds_.before > 0 || pushes_.before > 0; }

 private:
  struct Count {
    uint64_t before = 0, last = 0;  // of servers that are gone; of those that are there
    uint64_t Next(uint64_t now);
  };
  double Rate(uint64_t rounds, int64_t now_ms);

  std::map<uint64_t, ServerCounts> servers_;  // by incarnation, those of the last answer
  Count rounds_, pushes_;
  std::deque<std::pair<int64_t, uint64_t>> history_;  // (ms, rounds)
  double rate_ = 0;
};

}  // namespace cairn::cluster
