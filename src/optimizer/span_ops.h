// The arithmetic of a push on whole arrays (a dense slot, a slot's part of a push). The same bits
// as kernels.h. Requires spans of equal length that do not overlap.
#pragma once

#include <cstdint>
#include <span>

#include "cairn/types.h"

namespace cairn::optimizer {

// kSum.
void SumSpan(std::span<float> w, std::span<const float> g);
void SumSpan(std::span<uint64_t> w, std::span<const uint64_t> g);  // int64 with wrap-around
// kSgd with a gradient, and with the mean of a round. Requires divisor > 0.
void SgdSpan(std::span<float> w, std::span<const float> g, const Hyper& hyper);
void SgdOfMeanSpan(std::span<float> w, std::span<const float> sum, const Hyper& hyper, float divisor);

// Staging of a round: staged = weight * g, and staged += weight * g.
void StageCopySpan(std::span<float> staged, std::span<const float> g, float weight);
void StageAddSpan(std::span<float> staged, std::span<const float> g, float weight);

// No NaN and no infinity in it.
bool AllFinite(std::span<const float> values);

}  // namespace cairn::optimizer
