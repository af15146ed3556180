// Async load: every update is one push to the dense and one to the sparse table, a bounded number
// of them in flight.
#include <unistd.h>

#include <limits>
#include <utility>

#include "ledger.h"
#include "streams.h"

namespace soak {

cairn::Result<cairn::DenseTable> OpenAsyncDense(cairn::Client& client, const Options& options, uint32_t rank,
                                                uint32_t life) {
  cairn::TableSpec spec;
  spec.name = "soak.async.dense.r" + std::to_string(rank) + ".l" + std::to_string(life);
  spec.element = cairn::ElementType::kInt64;
  spec.size = uint64_t{options.dense_groups} * 4;
  return client.CreateDense(spec);
}

cairn::Result<cairn::SparseTable> OpenSparse(cairn::Client& client, bool sync) {
  cairn::TableSpec spec;
  spec.name = sync ? "soak.sync.sparse" : "soak.async.sparse";
  spec.kind = cairn::TableKind::kSparse;
  spec.element = cairn::ElementType::kInt64;
  spec.mode = sync ? cairn::Mode::kSync : cairn::Mode::kAsync;
  spec.dim = 4;
  return client.CreateSparse(spec);
}

bool ToldToEnd(const Options& options) {
  return !options.until.empty() && ::access(options.until.c_str(), F_OK) == 0;
}

uint64_t Remaining(const Life& life, Stream stream) {
  if (!life.options->until.empty()) return std::numeric_limits<uint64_t>::max();
  uint64_t submitted = 0;
  for (uint32_t l = 0; l < life.account->data().lives; ++l)
    submitted += life.account->data().life[l][stream].submitted;
  return submitted >= life.options->updates ? 0 : life.options->updates - submitted;
}

namespace {
struct InFlight {
  uint64_t number;
  cairn::Pending dense, sparse;
  Stopwatch watch;
};

cairn::Status AwaitOldest(const Life& life, std::deque<InFlight>* queue) {
  InFlight& oldest = queue->front();
  if (auto s = oldest.dense.Wait(); !s.ok()) return s;
  life.account->Acknowledged(life.number, kAsyncDense, oldest.number, oldest.watch.us());
  if (auto s = oldest.sparse.Wait(); !s.ok()) return s;
  life.account->Acknowledged(life.number, kAsyncSparse, oldest.number, oldest.watch.us());
  queue->pop_front();
  return cairn::Status::Ok();
}
}  // namespace

cairn::Status RunAsync(const Life& life) {
  const Options& options = *life.options;
  auto dense = OpenAsyncDense(*life.client, options, life.rank, life.number);
  if (!dense.ok()) return dense.status();
  auto sparse = OpenSparse(*life.client, false);
  if (!sparse.ok()) return sparse.status();
  const auto keys = KeysOf(life.rank, life.number, options.keys);
  std::vector<int64_t> dense_values(dense->size()), rows(keys.size() * 4);
  std::deque<InFlight> queue;
  const uint64_t count = Remaining(life, kAsyncDense);
  for (uint64_t n = 1; n <= count && !ToldToEnd(options); ++n) {
    const Entry update = UpdateOf(n);
    for (size_t i = 0; i < dense_values.size(); ++i) dense_values[i] = update[i % 4];
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = update[i % 4];
    life.account->Submitted(life.number, kAsyncDense, n);
    life.account->Submitted(life.number, kAsyncSparse, n);
    const Stopwatch watch;  // runs while a push waits for room, too
    queue.push_back({n, dense->Push(std::span<const int64_t>(dense_values)),
                     sparse->Push(keys, std::span<const int64_t>(rows)), watch});
    while (queue.size() >= options.in_flight)
      if (auto s = AwaitOldest(life, &queue); !s.ok()) return s;
    if (options.pause_us > 0) ::usleep(static_cast<useconds_t>(options.pause_us));
  }
  while (!queue.empty())
    if (auto s = AwaitOldest(life, &queue); !s.ok()) return s;
  return cairn::Status::Ok();
}

}  // namespace soak
