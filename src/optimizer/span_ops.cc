#include "optimizer/span_ops.h"

#include <limits>

#include "base/check.h"
#include "optimizer/kernels.h"

namespace cairn::optimizer {

void SumSpan(std::span<uint64_t> w, std::span<const uint64_t> g) {
  CAIRN_CHECK(w.size() == g.size());
  ChosenKernels().sum_integers(w.data(), g.data(), w.size());
}
void FirstSpan(std::span<uint64_t> w, std::span<const uint64_t> g) {
  CAIRN_CHECK(w.size() == g.size());
  for (size_t i = 0; i < w.size(); ++i) w[i] = w[i] == 0 ? g[i] : w[i];
}
void ReplaceSpan(std::span<float> w, std::span<const float> g, const OfMean& gradient) {
  CAIRN_CHECK(w.size() == g.size());
  ChosenKernels().replace(w.data(), g.data(), w.size(), gradient);
}
void StageCopySpan(std::span<float> staged, std::span<const float> g, float weight) {
  CAIRN_CHECK(staged.size() == g.size());
  if (!g.empty()) ChosenKernels().stage_copy(staged.data(), g.data(), staged.size(), weight);
}
void StageAddSpan(std::span<float> staged, std::span<const float> g, float weight) {
  CAIRN_CHECK(staged.size() == g.size());
  ChosenKernels().stage_add(staged.data(), g.data(), staged.size(), weight);
}
void StageAddRows(std::span<float* const> staged, const float* const* g, size_t dim, float weight) {
  ChosenKernels().stage_add_rows(staged.data(), g, staged.size(), dim, weight);
}

double AddSquares(double before, std::span<const float> sum, float divisor) {
  for (const float x : sum) {
    const double mean = x / divisor;  // rounded to float: what the optimizer would see
    before += mean * mean;
  }
  return before;
}

bool AllBelow(std::span<const float> values, float bound) {
  return ChosenKernels().all_below(values.data(), values.size(), bound);
}
bool AllFinite(std::span<const float> values) {
  return AllBelow(values, std::numeric_limits<float>::infinity());
}

}  // namespace cairn::optimizer
