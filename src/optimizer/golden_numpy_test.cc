// Steps of the optimizers that torch does not have, against their papers in NumPy
// (golden_numpy.inc, by golden_numpy.py), on a row as a sparse table keeps it.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "optimizer/golden_case.h"
#include "optimizer/update.h"

namespace cairn::optimizer {
namespace {

#include "optimizer/golden_numpy.inc"

// `size`: of the numbers that the expected one is a difference of, whose rounding it has.
void ExpectClose(float ours, float theirs, double size, const char* what, size_t i) {
  EXPECT_LE(std::fabs(ours - theirs), 2e-6 * std::fmax(std::fabs(theirs), size))
      << what << " " << i << ": " << ours << ", NumPy has " << theirs;
}

TEST(GoldenNumpy, RowOptimizersDoWhatTheirPapersSay) {
  ASSERT_GE(kGolden.size(), 8u);
  size_t zeros = 0;
  for (const Golden& golden : kGolden) {
    SCOPED_TRACE(golden.name);
    const size_t dim = kStart.size();
    ASSERT_EQ(golden.state.size(), StateColumns(golden.kind, golden.flags));
    std::vector<float> row = kStart;
    for (size_t c = 0; c < golden.state.size(); ++c) {
      const float initial = InitialState(golden.kind, static_cast<uint32_t>(c), golden.initial_state);
      row.insert(row.end(), golden.state[c].size(), initial);
    }
    std::vector<double> sizes(dim);  // the largest that each value has been
    double largest = 0;              // gradient
    for (size_t s = 0; s < kGradients.size(); ++s) {
      SCOPED_TRACE(testing::Message() << "step " << s + 1);
      Hyper hyper = golden.hyper;
      hyper.lr /= static_cast<double>(1 + s % 3);
      const RowStep step(StepNumbers(golden.kind, golden.flags, hyper, s + 1), GradientOf(golden.flags, 1, 1),
                         dim);
      float* rows[] = {row.data()};
      const float* gradients[] = {kGradients[s].data()};
      step(rows, gradients, 1);
      for (size_t i = 0; i < dim; ++i) {
        sizes[i] = std::fmax(sizes[i], std::fabs(s == 0 ? kStart[i] : golden.values[s - 1][i]));
        ExpectClose(row[i], golden.values[s][i], sizes[i], "value", i);
        zeros += row[i] == 0.0f;
        largest = std::fmax(largest, std::fabs(kGradients[s][i]));
      }
    }
    size_t at = dim;
    for (const std::vector<float>& column : golden.state) {
      for (size_t i = 0; i < column.size(); ++i) ExpectClose(row[at++], column[i], largest, "state", i);
    }
  }
  EXPECT_GT(zeros, kStart.size() * kGradients.size()) << "no case has weights that l1 makes 0";
}

}  // namespace
}  // namespace cairn::optimizer
