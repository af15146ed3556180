// The loops of this folder, once for each instruction set (SSE4, AVX2, AVX-512, and plain code for
// anything else), made from one text by Highway (docs/decisions/0019-simd.md). All of them give the
// same bits; one set is chosen for the process. span_ops.h and update.h are what others call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cairn/types.h"
#include "optimizer/gradient.h"

namespace cairn::optimizer {

struct StepNumbers;
struct RowStep;
struct NarrowRowStep;

// No two arrays of a call overlap, unless a comment says so. Elements need only the alignment of
// their type.
struct Kernels {
  const char* name;  // Highway's name for the instruction set

  // update.h: UpdateSpan and RowStep.
  void (*update)(const StepNumbers& numbers, const OfMean& gradient, float* w, const float* g,
                 float* const* state, size_t n);
  void (*update_rows)(const RowStep& step, float* const* rows, const float* const* gradients, size_t count);

  void (*update_narrow_rows)(const NarrowRowStep& step, uint16_t* const* rows, const uint64_t* seeds,
                             const float* const* gradients, size_t count);
  // narrow.h.
  void (*widen_rows)(Storage storage, const uint16_t* const* rows, float* const* out, size_t count,
                     size_t dim);

  // span_ops.h.
  void (*replace)(float* w, const float* g, size_t n, const OfMean& gradient);
  void (*stage_copy)(float* staged, const float* g, size_t n, float weight);
  void (*stage_add)(float* staged, const float* g, size_t n, float weight);
  void (*stage_add_rows)(float* const* staged, const float* const* g, size_t count, size_t dim, float weight);
  void (*sum_integers)(uint64_t* w, const uint64_t* g, size_t n);
  bool (*all_below)(const float* values, size_t n, float bound);
};

// The best one that this machine can run. Any thread; never changes.
const Kernels& ChosenKernels();
// All that were compiled and that this machine can run, the best one first.
std::span<const Kernels* const> SupportedKernels();

}  // namespace cairn::optimizer
