// What a worker does with the ids of a batch, in process and on one thread: de-duplication, partition
// by slot with the sum of equal ids' gradients, gathering rows for ids, and the cache of hot rows.
//
// The batch is that of the click model: 512 samples of 26 fields, 13,312 ids drawn by Zipf's law with
// exponent 1.2 from a million, rows of 16 floats. "ids" is their number, "unique" how many differ.
#include <benchmark/benchmark.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/random.h"
#include "client/cache/row_cache.h"
#include "client/partition/gather_rows.h"
#include "client/partition/partition.h"
#include "client/partition/unique_keys.h"

namespace cairn::client {
namespace {

constexpr size_t kFields = 26, kSamples = 512, kIds = kFields * kSamples;
constexpr uint64_t kFieldIds = 1'000'000 / kFields;
constexpr uint32_t kDim = 16, kSlots = 256;

// By rejection against the integral of x^-1.2.
uint64_t Zipf(Random& random) {
  const double most = std::pow(static_cast<double>(kFieldIds) + 1, -0.2);
  while (true) {
    const double u = static_cast<double>(random.Next() >> 11) * 0x1.0p-53;
    const double x = std::pow(1 - u * (1 - most), -5);
    if (x < static_cast<double>(kFieldIds)) return static_cast<uint64_t>(x) - 1;
  }
}

struct Batch {
  std::vector<RowKey> ids, unique;
  std::vector<int64_t> inverse;
};

Batch MakeBatch(uint64_t seed) {
  Random random(seed);
  Batch batch;
  for (size_t i = 0; i < kIds; ++i)
    batch.ids.push_back((i % kFields) * kFieldIds + Zipf(random) * 7919 % kFieldIds);
  batch.unique.resize(kIds);
  batch.inverse.resize(kIds);
  batch.unique.resize(UniqueKeys(batch.ids, batch.unique, batch.inverse));
  return batch;
}

void Describe(benchmark::State& state, size_t keys, const Batch& batch) {
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(keys));
  state.counters["ids"] = static_cast<double>(keys);
  state.counters["unique"] = static_cast<double>(batch.unique.size());
}

wire::ClusterState StateOf(uint32_t servers, uint32_t threads) {
  wire::ClusterState state;
  for (uint32_t i = 0; i < servers; ++i)
    state.servers.push_back({i, Incarnation{i + 1}, {"127.0.0.1", 1}, threads, false});
  for (uint32_t s = 0; s < kSlots; ++s) {
    wire::SlotOwner owner;
    const uint32_t at = s * servers * threads / kSlots;
    owner.server = static_cast<uint16_t>(at / threads);
    owner.thread = static_cast<uint16_t>(at % threads);
    state.slots.push_back(owner);
  }
  return state;
}

wire::TableInfo TableOf(uint32_t dim) {
  return {TableId{1}, {.name = "rows", .kind = TableKind::kSparse, .mode = Mode::kAsync, .dim = dim}, {}};
}

void Unique(benchmark::State& state) {
  const Batch batch = MakeBatch(1);
  std::vector<RowKey> unique(kIds);
  std::vector<int64_t> inverse(kIds);
  for (auto _ : state) benchmark::DoNotOptimize(UniqueKeys(batch.ids, unique, inverse));
  Describe(state, kIds, batch);
}
BENCHMARK(Unique)->Unit(benchmark::kMicrosecond);

// Frames ready to be sent. range: dim, servers, 1: all ids, 0: the unique ones (as cairn.nn sends them).
void Push(benchmark::State& state) {
  const Batch batch = MakeBatch(1);
  const auto dim = static_cast<uint32_t>(state.range(0));
  const wire::ClusterState cluster = StateOf(static_cast<uint32_t>(state.range(1)), 1);
  const wire::TableInfo table = TableOf(dim);
  const std::vector<RowKey>& keys = state.range(2) != 0 ? batch.ids : batch.unique;
  const std::vector<float> rows(keys.size() * dim, 0.25f);
  BufferPool pool;
  const PartitionInput input{
      .state = &cluster, .table = &table, .keys = keys, .values = std::as_bytes(std::span(rows))};
  for (auto _ : state) {
    Result<Request> request = PreparePush(input, pool);
    if (!request.ok()) return state.SkipWithError(request.status().message().c_str());
    benchmark::DoNotOptimize(request);
  }
  Describe(state, keys.size(), batch);
}
BENCHMARK(Push)
    ->ArgNames({"dim", "servers", "repeats"})
    ->Args({1, 1, 1})
    ->Args({kDim, 1, 1})
    ->Args({kDim, 2, 1})
    ->Args({kDim, 1, 0})
    ->Unit(benchmark::kMicrosecond);

void Pull(benchmark::State& state) {
  const Batch batch = MakeBatch(1);
  const wire::ClusterState cluster = StateOf(1, 1);
  const wire::TableInfo table = TableOf(kDim);
  std::vector<float> out(batch.unique.size() * kDim);
  BufferPool pool;
  const PartitionInput input{.state = &cluster,
                             .table = &table,
                             .keys = batch.unique,
                             .out = std::as_writable_bytes(std::span(out))};
  for (auto _ : state) {
    Result<Request> request = PreparePull(input, pool);
    if (!request.ok()) return state.SkipWithError(request.status().message().c_str());
    benchmark::DoNotOptimize(request);
  }
  Describe(state, batch.unique.size(), batch);
}
BENCHMARK(Pull)->Unit(benchmark::kMicrosecond);

void Gather(benchmark::State& state) {
  const Batch batch = MakeBatch(1);
  const std::vector<float> rows(batch.unique.size() * kDim, 1.0f);
  std::vector<float> out(kIds * kDim);
  for (auto _ : state) benchmark::DoNotOptimize(GatherRows(rows, kDim, batch.inverse, out));
  Describe(state, kIds, batch);
}
BENCHMARK(Gather)->Unit(benchmark::kMicrosecond);

void AddUp(benchmark::State& state) {
  const Batch batch = MakeBatch(1);
  const std::vector<float> rows(kIds * kDim, 1.0f);
  std::vector<float> sums(batch.unique.size() * kDim);
  for (auto _ : state) benchmark::DoNotOptimize(AddRows(rows, kDim, batch.inverse, sums));
  Describe(state, kIds, batch);
}
BENCHMARK(AddUp)->Unit(benchmark::kMicrosecond);

// Batch after batch through a cache: what it holds is taken, the rest given as if it had been read.
// range: rows of the cache. "hits" is the share that it had.
void Cached(benchmark::State& state) {
  std::vector<Batch> batches;
  for (uint64_t seed = 1; seed <= 64; ++seed) batches.push_back(MakeBatch(seed));
  RowCache cache({.rows = static_cast<uint64_t>(state.range(0)), .dim = kDim, .steps = 8});
  std::vector<float> out(kIds * kDim), read(kIds * kDim, 1.0f);
  std::vector<int64_t> missing(kIds);
  size_t at = 0, keys = 0;
  for (auto _ : state) {
    const std::vector<RowKey>& unique = batches[at++ % batches.size()].unique;
    const std::span<float> rows = std::span(out).first(unique.size() * kDim);
    const size_t left = cache.Take(unique, rows, missing);
    cache.Give(cache.ticket(), unique, std::span(missing).first(left), std::span(read).first(left * kDim),
               rows);
    cache.Step();
    keys += unique.size();
  }
  state.SetItemsProcessed(static_cast<int64_t>(keys));
  const RowCache::Stats stats = cache.stats();
  state.counters["hits"] = static_cast<double>(stats.hits) / static_cast<double>(stats.hits + stats.misses);
}
BENCHMARK(Cached)->ArgName("rows")->Arg(4'000)->Arg(20'000)->Arg(100'000)->Unit(benchmark::kMicrosecond);

// 13,312 keys, all of them in the cache.
void CacheHits(benchmark::State& state) {
  std::vector<RowKey> keys(kIds);
  for (size_t i = 0; i < kIds; ++i) keys[i] = Mix64(i);
  RowCache cache({.rows = 100'000, .dim = kDim, .steps = 1 << 30});
  std::vector<float> out(kIds * kDim), read(kIds * kDim, 1.0f);
  std::vector<int64_t> missing(kIds);
  for (int touch = 0; touch < 3; ++touch) {
    const size_t left = cache.Take(keys, out, missing);
    cache.Give(cache.ticket(), keys, std::span(missing).first(left), std::span(read).first(left * kDim), out);
  }
  size_t left = 0;
  for (auto _ : state) benchmark::DoNotOptimize(left = cache.Take(keys, out, missing));
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kIds));
  state.counters["missing"] = static_cast<double>(left);
}
BENCHMARK(CacheHits)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace cairn::client

BENCHMARK_MAIN();
