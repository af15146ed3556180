// As many floats at a time as an instruction set has room for, by Highway: lane by lane the same
// IEEE operations as scalar code. No MulAdd, no approximate reciprocal, no sum across lanes: those
// would be other numbers elsewhere. kernels.cc includes this once for each instruction set, hence
// the guard that Highway turns over.
#if defined(CAIRN_OPTIMIZER_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CAIRN_OPTIMIZER_LANES_INL_H_
#undef CAIRN_OPTIMIZER_LANES_INL_H_
#else
#define CAIRN_OPTIMIZER_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "optimizer/gradient.h"
#include "optimizer/narrow_inl.h"

HWY_BEFORE_NAMESPACE();
namespace cairn::optimizer::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A place in several arrays of floats at once, as wide as the tag D says.
template <class D>
struct Place {
  using Tag = D;
  using Lanes = hn::Vec<D>;
  size_t i;
  HWY_INLINE Lanes Get(const float* array) const { return hn::LoadU(D(), array + i); }
  HWY_INLINE Lanes All(float value) const { return hn::Set(D(), value); }
  // NaN is stored as one bit pattern.
  HWY_INLINE void Put(float* array, Lanes value) const {
    PutAsIs(array, hn::IfThenElse(value == value, value, All(std::bit_cast<float>(kCanonicalNan))));
  }
  template <class Format>
  HWY_INLINE Lanes Get(const NarrowRow<Format>& row) const {
    return Format::Widen(D(), row.values + i);
  }
  template <class Format>
  HWY_INLINE void Put(const NarrowRow<Format>& row, Lanes value) const {
    Format::NarrowAtRandom(D(), value, RandomBits(D(), row.seed, i), row.values + i);
  }
  HWY_INLINE void PutAsIs(float* array, Lanes value) const { hn::StoreU(value, D(), array + i); }
};

inline constexpr size_t kMaxLanes = hn::MaxLanes(hn::ScalableTag<float>());
// For loops that do nothing but wait for memory: vectors of 64 bytes were slower there than those of
// 32 (docs/decisions/0019-simd.md).
inline constexpr size_t kPlainLanes = std::min<size_t>(kMaxLanes, 8);

// work(place) for the elements from i on, kLanes at a time and the rest with less.
template <size_t kLanes, class Work>
HWY_INLINE void ForPlacesFrom(size_t i, size_t n, const Work& work) {
  for (; i + kLanes <= n; i += kLanes) work(Place<hn::CappedTag<float, kLanes>>{i});
  if constexpr (kLanes > 1) {
    if (i < n) ForPlacesFrom<(kLanes > 4 ? kLanes / 2 : 1)>(i, n, work);
  }
}
// Elements before the first one whose address is a multiple of kLanes floats.
template <size_t kLanes>
HWY_INLINE size_t Unaligned(const float* array) {
  return (0 - reinterpret_cast<uintptr_t>(array) / sizeof(float)) % kLanes;
}
// work(place) for all n elements. Vectors are aligned to `array`, which should be one that is
// written: a store to two cache lines takes twice as long.
template <size_t kLanes = kMaxLanes, class Work>
HWY_INLINE void ForPlaces(const float* array, size_t n, const Work& work) {
  size_t i = 0;
  if constexpr (kLanes > 1) {
    if (n >= 8 * kLanes) {  // otherwise it takes longer than it saves
      i = Unaligned<kLanes>(array);
      ForPlacesFrom<(kLanes > 4 ? 4 : 1)>(0, i, work);
    }
  }
  ForPlacesFrom<kLanes>(i, n, work);
}
// The same for a row of usual length, in vectors as long as it has room for, however it lies.
template <size_t kAtMost = kMaxLanes, size_t kCount, class Work>
HWY_INLINE void ForPlaces(const float*, std::integral_constant<size_t, kCount>, const Work& work) {
  constexpr size_t kLanes = std::min(kMaxLanes, kCount);
  static_assert(kCount % kLanes == 0);
  for (size_t i = 0; i < kCount; i += kLanes) work(Place<hn::CappedTag<float, kLanes>>{i});
}
template <size_t kLanes = kMaxLanes, class Format, class Work>
HWY_INLINE void ForPlaces(const NarrowRow<Format>&, size_t n, const Work& work) {
  ForPlacesFrom<kLanes>(0, n, work);
}
template <size_t kAtMost = kMaxLanes, class Format, size_t kCount, class Work>
HWY_INLINE void ForPlaces(const NarrowRow<Format>&, std::integral_constant<size_t, kCount> n,
                          const Work& work) {
  ForPlaces<kAtMost>(static_cast<const float*>(nullptr), n, work);
}

// The gradient at a place: as pushed, or as OfMean says.
struct AsPushed {
  template <class At>
  HWY_INLINE typename At::Lanes operator()(At at, const float* g) const {
    return at.Get(g);
  }
};
struct AsMean {
  float divisor, factor;
  template <class At>
  HWY_INLINE typename At::Lanes operator()(At at, const float* g) const {
    return at.Get(g) / at.All(divisor) * at.All(factor);
  }
};
// f(AsPushed) or f(AsMean): loops without work that changes nothing.
template <class F>
HWY_INLINE void WithGradient(const OfMean& gradient, const F& f) {
  if (gradient.changes_nothing()) return f(AsPushed{});
  return f(AsMean{gradient.divisor, gradient.factor});
}

// One array of values with its gradient and its state.
struct Span {
  float* w;
  const float* g;
  float* const* state;
  size_t n;
  // f(w, g, state, n), for each.
  template <class F>
  HWY_INLINE void ForEach(const F& f) const {
    f(w, g, state, n);
  }
};
// Rows of a table, one after the other (a row may come twice), each with its state behind its
// values: `width` numbers a column.
template <class Length>
struct Rows {
  float* const* rows;
  const float* const* gradients;
  size_t count;
  Length dim;
  size_t width;
  template <class F>
  HWY_INLINE void ForEach(const F& f) const {
    for (size_t r = 0; r < count; ++r) {
      float* const behind = rows[r] + dim;
      float* const state[] = {behind, behind + width, behind + 2 * width};
      f(rows[r], gradients[r], state, dim);
    }
  }
};
// The same of a table with narrow values, each with its seed.
template <class Format, class Length>
struct NarrowRows {
  uint16_t* const* rows;
  const uint64_t* seeds;
  const float* const* gradients;
  size_t count;
  Length dim;
  size_t width;
  template <class F>
  HWY_INLINE void ForEach(const F& f) const {
    for (size_t r = 0; r < count; ++r) {
      float* const behind = reinterpret_cast<float*>(rows[r] + NarrowElements(dim));
      float* const state[] = {behind, behind + width, behind + 2 * width};
      f(NarrowRow<Format>{rows[r], seeds[r]}, gradients[r], state, dim);
    }
  }
};
// f(length): a constant for usual lengths of rows, so that the loop over a row is straight code.
template <class F>
HWY_INLINE void WithLength(size_t n, const F& f) {
  switch (n) {
    case 8: return f(std::integral_constant<size_t, 8>{});
    case 16: return f(std::integral_constant<size_t, 16>{});
    case 32: return f(std::integral_constant<size_t, 32>{});
    case 64: return f(std::integral_constant<size_t, 64>{});
    default: return f(n);
  }
}

}  // namespace cairn::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
