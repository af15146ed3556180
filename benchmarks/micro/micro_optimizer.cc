// The optimizer's loops on arrays in the cache and in memory, beside memcpy and a += b as limits.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "limits/limits.h"
#include "optimizer/span_ops.h"
#include "optimizer/update.h"

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
// One step of an optimizer, as pushed or (a divisor other than 1) with the mean of a round.
void Step(benchmark::State& state, OptimizerKind kind, uint32_t flags, const Hyper& hyper, float divisor) {
  const auto n = static_cast<size_t>(state.range(0)) / 4;
  std::vector<std::vector<float>> columns(StateColumns(kind, flags));
  float* arrays[kMaxStateColumns] = {};
  for (size_t c = 0; c < columns.size(); ++c) {
    columns[c].assign(n + 16 * (2 * c + 7), 0.0f);
    arrays[c] = columns[c].data() + 16 * (2 * c + 7);
  }
  Run(state, [&](Arrays& a) {
    UpdateSpan(StepNumbers(kind, flags, hyper, 2), GradientOf(flags, divisor, 1.0), a.w, a.g, arrays);
  });
}
const Hyper kHyper{.lr = 1e-4, .weight_decay = 1e-3, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
void BM_Sum(benchmark::State& state) { Step(state, OptimizerKind::kSum, 0, kHyper, 1.0f); }
void BM_Sgd(benchmark::State& state) { Step(state, OptimizerKind::kSgd, 0, kHyper, 1.0f); }
void BM_SgdOfMean(benchmark::State& state) { Step(state, OptimizerKind::kSgd, 0, kHyper, 3.0f); }
void BM_Momentum(benchmark::State& state) { Step(state, OptimizerKind::kSgd, kWithMomentum, kHyper, 3.0f); }
void BM_Adagrad(benchmark::State& state) { Step(state, OptimizerKind::kAdagrad, 0, kHyper, 3.0f); }
void BM_Adam(benchmark::State& state) { Step(state, OptimizerKind::kAdam, 0, kHyper, 3.0f); }
void BM_Rmsprop(benchmark::State& state) { Step(state, OptimizerKind::kRmsprop, 0, kHyper, 3.0f); }
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
BENCHMARK(BM_Momentum)->Apply(Sizes);
BENCHMARK(BM_Adagrad)->Apply(Sizes);
BENCHMARK(BM_Adam)->Apply(Sizes);
BENCHMARK(BM_Rmsprop)->Apply(Sizes);
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
