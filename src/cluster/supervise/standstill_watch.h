// When the user is told that a job stands still: with --min-in-sync it may wait for a server that nobody
// starts any more, because it was given up or told to go.
#pragma once

#include <cstdint>

namespace cairn::cluster {

class StandstillWatch {
 public:
  enum class News { kNone, kStandsStill, kGoesOn };
  struct Answer {
    bool requests_wait = false;    // of a job that runs: some partitions have too few owners in sync
    bool too_few_servers = false;  // fewer than --min-in-sync
  };
  // A server that is started again is there within a few answers, and gets its copies by itself.
  static constexpr uint32_t kAnswers = 3;

  News Next(const Answer& answer);

 private:
  uint32_t answers_ = 0;  // in a row that say that requests wait for a server that is not there
};

}  // namespace cairn::cluster
