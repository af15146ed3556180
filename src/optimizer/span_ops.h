// The arithmetic of a push on whole arrays (a dense slot's segment, a slot's part of a push): what
// needs no optimizer. update.h has the optimizers. Requires spans of equal length that do not overlap.
#pragma once

#include <cstdint>
#include <span>

#include "cairn/types.h"
#include "optimizer/gradient.h"

namespace cairn::optimizer {

// kSum of int64 with wrap-around; kFirst: w = g where w is 0.
void SumSpan(std::span<uint64_t> w, std::span<const uint64_t> g);
void FirstSpan(std::span<uint64_t> w, std::span<const uint64_t> g);
// w = the gradient.
void ReplaceSpan(std::span<float> w, std::span<const float> g, const OfMean& gradient);

// Staging of a round: staged = weight * g, and staged += weight * g.
void StageCopySpan(std::span<float> staged, std::span<const float> g, float weight);
void StageAddSpan(std::span<float> staged, std::span<const float> g, float weight);

// StageAddSpan for rows of a sparse table, row by row, so that one may come twice.
void StageAddRows(std::span<float* const> staged, const float* const* g, size_t dim, float weight);

// `before` plus the squares of sum / divisor, one after the other. Not finite if one of them isn't:
// no sum of squares of floats is beyond a double.
double AddSquares(double before, std::span<const float> sum, float divisor);

// |value| < bound for all of them, so no NaN. Requires bound > 0.
bool AllBelow(std::span<const float> values, float bound);
// No NaN and no infinity in it.
bool AllFinite(std::span<const float> values);

}  // namespace cairn::optimizer
