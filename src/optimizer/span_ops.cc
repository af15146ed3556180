#include "optimizer/span_ops.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "optimizer/kernels.h"
#include "optimizer/lanes.h"

namespace cairn::optimizer {

void SumSpan(std::span<uint64_t> w, std::span<const uint64_t> g) {
  CAIRN_CHECK(w.size() == g.size());
  Sum(w.data(), g.data(), w.size());
}
void FirstSpan(std::span<uint64_t> w, std::span<const uint64_t> g) {
  CAIRN_CHECK(w.size() == g.size());
  First(w.data(), g.data(), w.size());
}
void ReplaceSpan(std::span<float> w, std::span<const float> g, const OfMean& gradient) {
  CAIRN_CHECK(w.size() == g.size());
  WithGradient(gradient, [&](auto of) { Replace(w.data(), g.data(), w.size(), of); });
}
void StageCopySpan(std::span<float> staged, std::span<const float> g, float weight) {
  CAIRN_CHECK(staged.size() == g.size());
  if (!g.empty()) StageCopy(staged.data(), g.data(), staged.size(), weight);
}
void StageAddSpan(std::span<float> staged, std::span<const float> g, float weight) {
  CAIRN_CHECK(staged.size() == g.size());
  StageAdd(staged.data(), g.data(), staged.size(), weight);
}

double AddSquares(double before, std::span<const float> sum, float divisor) {
  for (const float x : sum) {
    const double mean = x / divisor;  // rounded to float: what the optimizer would see
    before += mean * mean;
  }
  return before;
}

namespace {
// NaN and infinity are the values whose exponent is all ones.
constexpr int32_t kExponent = 0x7F800000;

// True where a value among the first 16 * (n / 16) is not finite.
bool AnyBad(const float* values, size_t n) {
  using Bits = LanesOf<int32_t>::Type;
  Bits bad0 = {}, bad1 = {}, bad2 = {}, bad3 = {};
  for (size_t i = 0; i + 16 <= n; i += 16) {
    bad0 |= ((Bits)Load(values + i) & kExponent) == kExponent;
    bad1 |= ((Bits)Load(values + i + 4) & kExponent) == kExponent;
    bad2 |= ((Bits)Load(values + i + 8) & kExponent) == kExponent;
    bad3 |= ((Bits)Load(values + i + 12) & kExponent) == kExponent;
  }
  const Bits bad = (bad0 | bad1) | (bad2 | bad3);
  return (bad[0] | bad[1] | bad[2] | bad[3]) != 0;
}
}  // namespace

bool AllFinite(std::span<const float> values) {
  constexpr size_t kPiece = 4096;  // looks at the result now and then: a bad push ends early
  for (size_t begin = 0; begin < values.size(); begin += kPiece) {
    if (AnyBad(values.data() + begin, std::min(kPiece, values.size() - begin))) return false;
  }
  for (size_t i = values.size() & ~size_t{15}; i < values.size(); ++i) {
    if ((std::bit_cast<int32_t>(values[i]) & kExponent) == kExponent) return false;
  }
  return true;
}

}  // namespace cairn::optimizer
