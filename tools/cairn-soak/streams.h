// The two kinds of load: numbered pushes to tables of one's own (async), and rounds that all
// workers share (sync). Each knows its tables, its place in them and when to stop.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "account.h"
#include "cairn/client.h"
#include "ledger.h"
#include "worker.h"

namespace soak {

struct Life {
  const Options* options;
  cairn::Client* client;
  Account* account;
  uint32_t rank, number, world;
};

// Where a life writes in the shared dense sync table: region 0 is the control region.
inline uint64_t SyncDenseSize(const Options& options, uint32_t world) {
  return options.region * (1 + uint64_t{world} * options.lives);
}
inline uint64_t RegionOf(const Options& options, uint32_t rank, uint32_t life) {
  return options.region * (1 + uint64_t{rank} * options.lives + life);
}
// The control row of the sparse sync table.
inline constexpr cairn::RowKey kControlKey = 0;

cairn::Result<cairn::DenseTable> OpenAsyncDense(cairn::Client& client, const Options& options, uint32_t rank,
                                                uint32_t life);
cairn::Result<cairn::SparseTable> OpenSparse(cairn::Client& client, bool sync);
cairn::Result<cairn::DenseTable> OpenSyncDense(cairn::Client& client, const Options& options, uint32_t world);
// One element per sync table: how many workers have seen its last round.
cairn::Result<cairn::DenseTable> OpenFlags(cairn::Client& client);

// How many updates this life has to submit of a stream, if nothing ends it before: what the rank's
// earlier lives have left.
uint64_t Remaining(const Life& life, Stream stream);
// The load has been ended from outside (Options::until).
bool ToldToEnd(const Options& options);

// Time since it was made.
class Stopwatch {
 public:
  uint64_t us() const {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin_)
            .count());
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// Options::ballast_mb: rank 0 fills it once, and finds it whole at the end.
cairn::Status FillBallast(const Life& life);
cairn::Status CheckBallast(const Life& life, Verdict* verdict);

// Pushes until nothing remains and everything is acknowledged.
cairn::Status RunAsync(const Life& life);
// Takes part in rounds until every worker has said that it is finished.
cairn::Status RunSync(const Life& life);

}  // namespace soak
