// Steps of every optimizer against what torch made of them (golden_torch.inc, by golden_torch.py).
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "optimizer/golden_case.h"
#include "optimizer/update.h"

namespace cairn::optimizer {
namespace {

#include "optimizer/golden_torch.inc"

// `before`: what torch had a step earlier. Where a step leaves little of it, the rounding is still
// that of the larger number.
void ExpectClose(const std::vector<float>& ours, const std::vector<float>& torchs,
                 const std::vector<float>& before, const char* what) {
  ASSERT_EQ(ours.size(), torchs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_LE(std::fabs(ours[i] - torchs[i]), 1e-6 * std::fmax(std::fabs(torchs[i]), std::fabs(before[i])))
        << what << " of element " << i << ": " << ours[i] << ", torch has " << torchs[i];
  }
}

TEST(GoldenTorch, EveryOptimizerDoesWhatTorchDoes) {
  ASSERT_GE(kGolden.size(), 20u);
  for (const Golden& golden : kGolden) {
    SCOPED_TRACE(golden.name);
    std::vector<float> w = kStart;
    std::vector<std::vector<float>> columns(StateColumns(golden.kind, golden.flags),
                                            std::vector<float>(w.size(), golden.initial_state));
    ASSERT_EQ(columns.size(), golden.state.size());
    float* state[kMaxStateColumns] = {};
    for (size_t c = 0; c < columns.size(); ++c) state[c] = columns[c].data();
    ASSERT_EQ(golden.values.size(), kGradients.size());
    for (size_t s = 0; s < kGradients.size(); ++s) {
      SCOPED_TRACE(testing::Message() << "step " << s + 1);
      Hyper hyper = golden.hyper;
      hyper.lr /= static_cast<double>(1 + s % 3);
      UpdateSpan(StepNumbers(golden.kind, golden.flags, hyper, s + 1), GradientOf(golden.flags, 1, 1), w,
                 kGradients[s], state);
      ExpectClose(w, golden.values[s], s == 0 ? kStart : golden.values[s - 1], "value");
    }
    for (size_t c = 0; c < columns.size(); ++c)
      ExpectClose(columns[c], golden.state[c], golden.state[c], "state");
  }
}

}  // namespace
}  // namespace cairn::optimizer
