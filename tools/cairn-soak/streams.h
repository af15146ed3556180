// The two kinds of load: numbered pushes to tables of one's own (async), and rounds that all
// workers share (sync). Each knows its tables, its place in them and when to stop.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "account.h"
#include "cairn/client.h"
#include "worker.h"

namespace soak {

struct Life {
  const Options* options;
  cairn::Client* client;
  Account* account;
  uint32_t rank, number, world;
};

// Where a life writes in the shared dense sync table: block 0 is the control block.
inline constexpr uint64_t kRegion = 1024;
inline uint64_t SyncDenseSize(uint32_t world) { return kRegion * (1 + uint64_t{world} * kMaxLives); }
inline uint64_t RegionOf(uint32_t rank, uint32_t life) { return kRegion * (1 + uint64_t{rank} * kMaxLives + life); }
// The control row of the sparse sync table.
inline constexpr cairn::RowKey kControlKey = 0;

cairn::Result<cairn::DenseTable> OpenAsyncDense(cairn::Client& client, const Options& options, uint32_t rank,
                                                uint32_t life);
cairn::Result<cairn::SparseTable> OpenSparse(cairn::Client& client, bool sync);
cairn::Result<cairn::DenseTable> OpenSyncDense(cairn::Client& client, uint32_t world);
// One element per sync table: how many workers have seen its last round.
cairn::Result<cairn::DenseTable> OpenFlags(cairn::Client& client);

// Updates this rank still has to submit of a stream, over all its lives.
uint64_t Remaining(const Life& life, Stream stream);

// Pushes until nothing remains and everything is acknowledged.
cairn::Status RunAsync(const Life& life);
// Takes part in rounds until every worker has said that it is finished.
cairn::Status RunSync(const Life& life);

}  // namespace soak
