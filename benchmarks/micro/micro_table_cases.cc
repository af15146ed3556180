// Sparse tables in process, case by case: the index alone, Apply and Read with and without checks,
// every optimizer and storage, at several sizes, beside the limit: random rows of the same size without
// an index. A frame of random keys is cut by slot as a server gets it; the figure is rows/s over
// frames, one thread. micro_table.cc prints the few that goals are set for.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <vector>

#include "base/random.h"
#include "sparse_tables.h"
#include "table/sparse/line_index.h"
#include "table/sparse/row_pipeline.h"
#include "wire/cluster_state.h"

namespace bench {
namespace {

using namespace cairn;
using table::Arena;
using table::LineIndex;

constexpr size_t kFrames = 16;

// Filling takes seconds, so a table is kept for the benchmarks that follow.
SparseTables& TablesOf(uint64_t rows, OptimizerKind optimizer, Storage storage) {
  static std::unique_ptr<SparseTables> kept;
  if (kept == nullptr || kept->options.rows != rows || kept->options.optimizer != optimizer ||
      kept->options.storage != storage) {
    kept.reset();
    kept = std::make_unique<SparseTables>(TableOptions{rows, optimizer, storage});
  }
  return *kept;
}
void Report(benchmark::State& state, const SparseTables& tables, size_t keys) {
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(keys));
  state.counters["overhead_B/row"] =
      static_cast<double>(tables.counted_bytes) / static_cast<double>(tables.options.rows) -
      static_cast<double>(tables.row_bytes);
}

// For all optimizers; kFtrl takes beta1 for its l1.
const Hyper kHyper{.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .step = 2};

// state.range: rows, keys a slot.
void Push(benchmark::State& state, OptimizerKind optimizer, Storage storage = Storage::kFull,
          bool check = false) {
  const auto rows = static_cast<uint64_t>(state.range(0));
  const size_t keys = static_cast<size_t>(state.range(1)) * kSlots;
  SparseTables& tables = TablesOf(rows, optimizer, storage);
  const std::vector<Frame> frames = MakeFrames(rows, keys, kFrames);
  const std::vector<float> values(keys * kDim, 1e-6f);
  size_t turn = 0;
  for (auto _ : state) {
    const Frame& frame = frames[turn++ % kFrames];
    if (!check) {
      tables.Push(frame, values, kHyper);
    } else if (!tables.CheckAndPush(frame, values, kHyper)) {
      state.SkipWithError("refused");
    }
  }
  Report(state, tables, keys);
}
using enum OptimizerKind;
void BM_ApplySum(benchmark::State& state) { Push(state, kSum); }
void BM_ApplySgd(benchmark::State& state) { Push(state, kSgd); }
void BM_ApplySgdBfloat16(benchmark::State& state) { Push(state, kSgd, Storage::kBfloat16); }
void BM_ApplySgdFloat16(benchmark::State& state) { Push(state, kSgd, Storage::kFloat16); }
void BM_ApplyAdagrad(benchmark::State& state) { Push(state, kAdagrad); }
void BM_ApplyRowwiseAdagrad(benchmark::State& state) { Push(state, kRowwiseAdagrad); }
void BM_ApplyRowwiseAdagradBfloat16(benchmark::State& state) {
  Push(state, kRowwiseAdagrad, Storage::kBfloat16);
}
void BM_ApplySparseAdam(benchmark::State& state) { Push(state, kSparseAdam); }
void BM_ApplyFtrl(benchmark::State& state) { Push(state, kFtrl); }
void BM_CheckAndApplySgd(benchmark::State& state) { Push(state, kSgd, Storage::kFull, true); }

void Read(benchmark::State& state, Storage storage) {
  const auto rows = static_cast<uint64_t>(state.range(0));
  const size_t keys = static_cast<size_t>(state.range(1)) * kSlots;
  SparseTables& tables = TablesOf(rows, kSgd, storage);
  const std::vector<Frame> frames = MakeFrames(rows, keys, kFrames);
  std::vector<float> out(keys * kDim);
  size_t turn = 0;
  for (auto _ : state) tables.Pull(frames[turn++ % kFrames], out);
  Report(state, tables, keys);
}
void BM_Read(benchmark::State& state) { Read(state, Storage::kFull); }
void BM_ReadBfloat16(benchmark::State& state) { Read(state, Storage::kBfloat16); }

// Two workers contribute the same frame, then the round is applied; rows/s of contributed rows.
void BM_StageTwiceAndApply(benchmark::State& state) {
  const auto rows = static_cast<uint64_t>(state.range(0));
  const size_t keys = static_cast<size_t>(state.range(1)) * kSlots;
  SparseTables& tables = TablesOf(rows, kSgd, Storage::kFull);
  const std::vector<Frame> frames = MakeFrames(rows, keys, kFrames);
  const std::vector<float> values(keys * kDim, 1e-6f);
  size_t turn = 0;
  for (auto _ : state) {
    const Frame& frame = frames[turn++ % kFrames];
    for (uint32_t s = 0; s < kSlots; ++s) {
      const auto part =
          std::as_bytes(std::span(values).subspan(frame.begin[s] * kDim, frame.of(s).size() * kDim));
      for (int worker = 0; worker < 2; ++worker) tables.slots[s]->Stage(frame.of(s), part, {}, 1.0);
      tables.slots[s]->ApplyStaged({.lr = 0.01}, 2.0, 1.0);
    }
  }
  Report(state, tables, 2 * keys);
}

// A row += a gradient, as one vector of the compiler.
void AddRow(float* row, const float* g) {
  typedef float Row __attribute__((vector_size(kDim * sizeof(float)), aligned(4), may_alias));
  *reinterpret_cast<Row*>(row) += *reinterpret_cast<const Row*>(g);
}

// The limit: rows at random places whose addresses are known, read and added to.
void BM_LimitRandomAdd(benchmark::State& state) {
  const auto rows = static_cast<uint64_t>(state.range(0));
  constexpr size_t kVisits = 1 << 20, kAhead = 24;
  Arena arena;
  std::byte* base = arena.Take(rows * kDim * sizeof(float));
  std::memset(base, 0, rows * kDim * sizeof(float));
  auto* table = reinterpret_cast<float*>(base);
  Random random(9);
  std::vector<uint32_t> visits(kVisits + kAhead);
  for (uint32_t& row : visits) row = static_cast<uint32_t>(random.Below(rows));
  const std::vector<float> g(kDim, 1e-6f);
  for (auto _ : state) {
    for (size_t i = 0; i < kVisits; ++i) {
      __builtin_prefetch(table + size_t{visits[i + kAhead]} * kDim);
      AddRow(table + size_t{visits[i]} * kDim, g.data());
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kVisits));
  arena.Give(base, rows * kDim * sizeof(float));
}

// The index alone, pipelined: hash, prefetch, find. One index per slot.
void BM_IndexFind(benchmark::State& state) {
  const auto rows = static_cast<uint64_t>(state.range(0));
  const size_t keys = static_cast<size_t>(state.range(1)) * kSlots;
  Arena arena;
  {
    std::vector<std::unique_ptr<LineIndex>> indexes;
    for (uint32_t s = 0; s < kSlots; ++s) indexes.push_back(std::make_unique<LineIndex>(arena, s));
    for (RowKey key = 0; key < rows; ++key) {
      LineIndex& index = *indexes[wire::SlotOfKey(key, kSlots).value];
      index.Insert(key, LineIndex::HashOf(key), static_cast<uint32_t>(index.size()));
    }
    const std::vector<Frame> frames = MakeFrames(rows, keys, kFrames);
    size_t turn = 0;
    uint64_t sum = 0;
    for (auto _ : state) {
      const Frame& frame = frames[turn++ % kFrames];
      for (uint32_t s = 0; s < kSlots; ++s) {
        const auto part = frame.of(s);
        const LineIndex& index = *indexes[s];
        for (size_t i = 0; i < part.size() + table::kGroup; ++i) {
          if (i < part.size()) __builtin_prefetch(index.LineFor(LineIndex::HashOf(part[i])));
          if (i >= table::kGroup) {
            const RowKey key = part[i - table::kGroup];
            sum += index.Find(key, LineIndex::HashOf(key));
          }
        }
      }
    }
    benchmark::DoNotOptimize(sum);
    uint64_t memory = 0;
    for (const auto& index : indexes) memory += index->memory_bytes();
    state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(keys));
    state.counters["B/row"] = static_cast<double>(memory) / static_cast<double>(rows);
  }
}

void Cases(benchmark::internal::Benchmark* b) {
  for (int64_t rows : {1'000'000, 10'000'000}) {
    for (int64_t keys_per_slot : {50, 200, 400}) b->Args({rows, keys_per_slot});
  }
  b->ArgNames({"rows", "keys_per_slot"})->Unit(benchmark::kMillisecond);
}
BENCHMARK(BM_LimitRandomAdd)->Arg(1'000'000)->Arg(10'000'000)->ArgName("rows")->Unit(benchmark::kMillisecond);
BENCHMARK(BM_IndexFind)->Apply(Cases);
BENCHMARK(BM_ApplySum)->Apply(Cases);
BENCHMARK(BM_ApplySgd)->Apply(Cases);
BENCHMARK(BM_ApplySgdBfloat16)->Apply(Cases);
BENCHMARK(BM_ApplySgdFloat16)->Apply(Cases);
BENCHMARK(BM_CheckAndApplySgd)->Apply(Cases);
BENCHMARK(BM_ApplyAdagrad)->Apply(Cases);
BENCHMARK(BM_ApplyRowwiseAdagrad)->Apply(Cases);
BENCHMARK(BM_ApplyRowwiseAdagradBfloat16)->Apply(Cases);
BENCHMARK(BM_ApplySparseAdam)->Apply(Cases);
BENCHMARK(BM_ApplyFtrl)->Apply(Cases);
BENCHMARK(BM_Read)->Apply(Cases);
BENCHMARK(BM_ReadBfloat16)->Apply(Cases);
BENCHMARK(BM_StageTwiceAndApply)->Apply(Cases);

}  // namespace
}  // namespace bench

BENCHMARK_MAIN();
