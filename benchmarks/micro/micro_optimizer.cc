// The optimizer's loops on arrays in the cache and in memory, beside memcpy and a += b as limits.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "limits/limits.h"
#include "optimizer/span_ops.h"

namespace cairn::optimizer {
namespace {

// Bytes of the gradient: 64 KiB is a piece of a push, 64 MiB lies in memory.
void Sizes(benchmark::internal::Benchmark* b) { b->Arg(64 << 10)->Arg(64 << 20); }

struct Arrays {
  explicit Arrays(int64_t bytes)
      : size(static_cast<size_t>(bytes) / 4),
        w(size, 1.0f),
        g_piece(size + 80, 0.5f),
        g(g_piece.data() + 80, size) {}
  size_t size;
  std::vector<float> w, g_piece;
  std::span<const float> g;
};

template <class Work>
void Run(benchmark::State& state, Work work) {
  Arrays a(state.range(0));
  for (auto _ : state) {
    work(a);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void BM_Memcpy(benchmark::State& state) {
  Run(state, [](Arrays& a) { std::memcpy(a.w.data(), a.g.data(), a.size * 4); });
}
void BM_Sum(benchmark::State& state) {
  Run(state, [](Arrays& a) { SumSpan(a.w, a.g); });
}
void BM_Sgd(benchmark::State& state) {
  Run(state, [](Arrays& a) { SgdSpan(a.w, a.g, {.lr = 1e-4f, .weight_decay = 1e-3f}); });
}
void BM_SgdOfMean(benchmark::State& state) {
  Run(state, [](Arrays& a) { SgdOfMeanSpan(a.w, a.g, {.lr = 1e-4f, .weight_decay = 1e-3f}, 3.0f); });
}
void BM_StageCopy(benchmark::State& state) {
  Run(state, [](Arrays& a) { StageCopySpan(a.w, a.g, 1.0f); });
}
void BM_StageAdd(benchmark::State& state) {
  Run(state, [](Arrays& a) { StageAddSpan(a.w, a.g, 1.0f); });
}
void BM_StageAddWeighted(benchmark::State& state) {
  Run(state, [](Arrays& a) { StageAddSpan(a.w, a.g, 0.25f); });
}
void BM_AllFinite(benchmark::State& state) {
  Run(state, [](Arrays& a) { benchmark::DoNotOptimize(AllFinite(a.g)); });
}
BENCHMARK(BM_Memcpy)->Apply(Sizes);
BENCHMARK(BM_Sum)->Apply(Sizes);
BENCHMARK(BM_Sgd)->Apply(Sizes);
BENCHMARK(BM_SgdOfMean)->Apply(Sizes);
BENCHMARK(BM_StageCopy)->Apply(Sizes);
BENCHMARK(BM_StageAdd)->Apply(Sizes);
BENCHMARK(BM_StageAddWeighted)->Apply(Sizes);
BENCHMARK(BM_AllFinite)->Apply(Sizes);

}  // namespace
}  // namespace cairn::optimizer

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  benchmark::AddCustomContext("memcpy GB/s", std::to_string(bench::MemcpyGbPerSecond()));
  benchmark::AddCustomContext("a += b GB/s", std::to_string(bench::AddGbPerSecond()));
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
