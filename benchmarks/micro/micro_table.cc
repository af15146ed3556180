// Sparse tables in process: the index alone, Apply and Read with their checks, bytes a row and the
// longest pause while filling (growth_us; fault_us where the system gave a new page meanwhile),
// beside the limit: random rows of the same size without an index.
//
// A frame of random keys is cut by slot as a server gets it; the figure is rows/s over
// frames, one thread.
#include <benchmark/benchmark.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "base/random.h"
#include "table/arena.h"
#include "table/line_index.h"
#include "table/row_layout.h"
#include "table/row_pipeline.h"
#include "table/slot_table.h"

namespace cairn::table {
namespace {

constexpr uint32_t kSlots = 256;
constexpr uint32_t kDim = 16;
constexpr size_t kFrames = 16;

// Of this thread, so that other programs on the machine do not count as pauses.
double CpuMicroseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

long PageFaults() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

// Keys of a frame by slot, one after the other.
struct Frame {
  std::vector<RowKey> keys;
  std::vector<size_t> begin;  // kSlots + 1
  std::span<const RowKey> of(uint32_t slot) const {
    return std::span(keys).subspan(begin[slot], begin[slot + 1] - begin[slot]);
  }
};
Frame MakeFrame(Random& random, uint64_t rows, size_t count) {
  std::vector<std::vector<RowKey>> by_slot(kSlots);
  for (size_t i = 0; i < count; ++i) {
    const RowKey key = random.Below(rows);
    by_slot[wire::SlotOfKey(key, kSlots).value].push_back(key);
  }
  Frame frame;
  frame.begin.push_back(0);
  for (const auto& keys : by_slot) {
    frame.keys.insert(frame.keys.end(), keys.begin(), keys.end());
    frame.begin.push_back(frame.keys.size());
  }
  return frame;
}

struct Tables {
  Arena arena;
  std::vector<std::unique_ptr<SlotTable>> slots;
  double longest_growth_us = 0;  // of one insertion of up to 16 keys, without page faults
  double longest_fault_us = 0;   // the same with the first touch of a huge page
  uint64_t rows = 0;
  uint64_t memory = 0;
  double row_bytes = 0;  // values and state

  explicit Tables(uint64_t row_count, OptimizerKind optimizer) : rows(row_count) {
    TableSpec spec{.name = "emb", .kind = TableKind::kSparse, .optimizer = optimizer, .dim = kDim};
    const wire::TableInfo info{TableId{1}, spec, ViewNumber{1}};
    row_bytes = static_cast<double>(RowLayout(spec).row_bytes());
    for (uint32_t s = 0; s < kSlots; ++s) slots.push_back(SlotTable::Make(info, SlotId{s}, kSlots, arena));
    constexpr size_t kPiece = 16;
    const std::vector<float> zeros(kPiece * kDim);
    std::vector<std::vector<RowKey>> waiting(kSlots);
    const auto flush = [&](uint32_t s) {
      const long faults = PageFaults();
      const double start = CpuMicroseconds();
      slots[s]->Apply(waiting[s], std::as_bytes(std::span(zeros).first(waiting[s].size() * kDim)), {}, {});
      const double us = CpuMicroseconds() - start;
      double& longest = PageFaults() == faults ? longest_growth_us : longest_fault_us;
      longest = std::max(longest, us);
      waiting[s].clear();
    };
    for (RowKey key = 0; key < rows; ++key) {
      const uint32_t s = wire::SlotOfKey(key, kSlots).value;
      waiting[s].push_back(key);
      if (waiting[s].size() == kPiece) flush(s);
    }
    for (uint32_t s = 0; s < kSlots; ++s) flush(s);
    for (const auto& slot : slots) memory += slot->memory_bytes();
  }
};

// Filling takes seconds, so a table is kept for the benchmarks that follow.
Tables& TablesOf(uint64_t rows, OptimizerKind optimizer) {
  static std::unique_ptr<Tables> kept;
  static OptimizerKind kept_optimizer;
  if (kept == nullptr || kept->rows != rows || kept_optimizer != optimizer) {
    kept.reset();
    kept = std::make_unique<Tables>(rows, optimizer);
    kept_optimizer = optimizer;
  }
  return *kept;
}
std::vector<Frame> FramesOf(uint64_t rows, size_t keys) {
  Random random(3);
  std::vector<Frame> frames;
  for (size_t i = 0; i < kFrames; ++i) frames.push_back(MakeFrame(random, rows, keys));
  return frames;
}
void Report(benchmark::State& state, const Tables& tables, size_t keys) {
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(keys));
  state.counters["overhead_B/row"] =
      static_cast<double>(tables.memory) / static_cast<double>(tables.rows) - tables.row_bytes;
  state.counters["growth_us"] = tables.longest_growth_us;
  state.counters["fault_us"] = tables.longest_fault_us;
}

// For all optimizers; kFtrl takes beta1 for its l1.
const Hyper kHyper{.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .step = 2};

// state.range: rows, keys a slot.
void Push(benchmark::State& state, OptimizerKind optimizer, bool check) {
  const auto rows = static_cast<uint64_t>(state.range(0));
  const size_t keys = static_cast<size_t>(state.range(1)) * kSlots;
  Tables& tables = TablesOf(rows, optimizer);
  const std::vector<Frame> frames = FramesOf(rows, keys);
  const std::vector<float> values(keys * kDim, 1e-6f);
  size_t turn = 0;
  for (auto _ : state) {
    const Frame& frame = frames[turn++ % kFrames];
    for (uint32_t s = 0; s < kSlots; ++s) {
      const auto part =
          std::as_bytes(std::span(values).subspan(frame.begin[s] * kDim, frame.of(s).size() * kDim));
      if (check && !tables.slots[s]->Check(frame.of(s), part, {}).ok()) state.SkipWithError("refused");
      tables.slots[s]->Apply(frame.of(s), part, {}, kHyper);
    }
  }
  Report(state, tables, keys);
}
void BM_ApplySum(benchmark::State& state) { Push(state, OptimizerKind::kSum, false); }
void BM_ApplySgd(benchmark::State& state) { Push(state, OptimizerKind::kSgd, false); }
void BM_ApplyAdagrad(benchmark::State& state) { Push(state, OptimizerKind::kAdagrad, false); }
void BM_ApplyRowwiseAdagrad(benchmark::State& state) { Push(state, OptimizerKind::kRowwiseAdagrad, false); }
void BM_ApplySparseAdam(benchmark::State& state) { Push(state, OptimizerKind::kSparseAdam, false); }
void BM_ApplyFtrl(benchmark::State& state) { Push(state, OptimizerKind::kFtrl, false); }
void BM_CheckAndApplySgd(benchmark::State& state) { Push(state, OptimizerKind::kSgd, true); }

void BM_Read(benchmark::State& state) {
  const auto rows = static_cast<uint64_t>(state.range(0));
  const size_t keys = static_cast<size_t>(state.range(1)) * kSlots;
  Tables& tables = TablesOf(rows, OptimizerKind::kSgd);
  const std::vector<Frame> frames = FramesOf(rows, keys);
  std::vector<float> out(keys * kDim);
  size_t turn = 0;
  for (auto _ : state) {
    const Frame& frame = frames[turn++ % kFrames];
    for (uint32_t s = 0; s < kSlots; ++s) {
      tables.slots[s]->Read(frame.of(s), 0, reinterpret_cast<std::byte*>(out.data() + frame.begin[s] * kDim));
    }
  }
  Report(state, tables, keys);
}

// Two workers contribute the same frame, then the round is applied; rows/s of contributed rows.
void BM_StageTwiceAndApply(benchmark::State& state) {
  const auto rows = static_cast<uint64_t>(state.range(0));
  const size_t keys = static_cast<size_t>(state.range(1)) * kSlots;
  Tables& tables = TablesOf(rows, OptimizerKind::kSgd);
  const std::vector<Frame> frames = FramesOf(rows, keys);
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
    const std::vector<Frame> frames = FramesOf(rows, keys);
    size_t turn = 0;
    uint64_t sum = 0;
    for (auto _ : state) {
      const Frame& frame = frames[turn++ % kFrames];
      for (uint32_t s = 0; s < kSlots; ++s) {
        const auto part = frame.of(s);
        const LineIndex& index = *indexes[s];
        for (size_t i = 0; i < part.size() + kGroup; ++i) {
          if (i < part.size()) __builtin_prefetch(index.LineFor(LineIndex::HashOf(part[i])));
          if (i >= kGroup) sum += index.Find(part[i - kGroup], LineIndex::HashOf(part[i - kGroup]));
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
BENCHMARK(BM_CheckAndApplySgd)->Apply(Cases);
BENCHMARK(BM_ApplyAdagrad)->Apply(Cases);
BENCHMARK(BM_ApplyRowwiseAdagrad)->Apply(Cases);
BENCHMARK(BM_ApplySparseAdam)->Apply(Cases);
BENCHMARK(BM_ApplyFtrl)->Apply(Cases);
BENCHMARK(BM_Read)->Apply(Cases);
BENCHMARK(BM_StageTwiceAndApply)->Apply(Cases);

}  // namespace
}  // namespace cairn::table

BENCHMARK_MAIN();
