// The loops of span_ops.h for one instruction set. Only kernels.cc includes this: see lanes_inl.h.
#if defined(CAIRN_OPTIMIZER_SPAN_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CAIRN_OPTIMIZER_SPAN_KERNELS_INL_H_
#undef CAIRN_OPTIMIZER_SPAN_KERNELS_INL_H_
#else
#define CAIRN_OPTIMIZER_SPAN_KERNELS_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "optimizer/lanes_inl.h"

HWY_BEFORE_NAMESPACE();
namespace cairn::optimizer::HWY_NAMESPACE {

inline void ReplaceArray(float* w, const float* g, size_t n, const OfMean& gradient) {
  WithGradient(gradient, [=](auto of) HWY_ATTR {
    ForPlaces<kPlainLanes>(w, n, [=](auto at) HWY_ATTR { at.Put(w, of(at, g)); });
  });
}

// A weight of 1 takes part in no multiplication, so that it is exact and NaN payloads stay as they
// are.
inline void StageCopyArray(float* staged, const float* g, size_t n, float weight) {
  if (weight == 1.0f) {
    std::memcpy(staged, g, n * sizeof(float));
  } else {
    ForPlaces<kPlainLanes>(staged, n,
                           [=](auto at) HWY_ATTR { at.PutAsIs(staged, at.All(weight) * at.Get(g)); });
  }
}

template <class Arrays>
HWY_INLINE void StageAdd(const Arrays& arrays, float weight) {
  if (weight == 1.0f) {
    arrays.ForEach([](float* staged, const float* g, float* const*, auto n) HWY_ATTR {
      ForPlaces<kPlainLanes>(staged, n,
                             [=](auto at) HWY_ATTR { at.PutAsIs(staged, at.Get(staged) + at.Get(g)); });
    });
  } else {
    arrays.ForEach([=](float* staged, const float* g, float* const*, auto n) HWY_ATTR {
      ForPlaces<kPlainLanes>(staged, n, [=](auto at) HWY_ATTR {
        at.PutAsIs(staged, at.Get(staged) + at.All(weight) * at.Get(g));
      });
    });
  }
}
inline void StageAddArray(float* staged, const float* g, size_t n, float weight) {
  StageAdd(Span{staged, g, nullptr, n}, weight);
}
inline void StageAddRows(float* const* staged, const float* const* g, size_t count, size_t dim,
                         float weight) {
  WithLength(dim, [=](auto n) HWY_ATTR { StageAdd(Rows<decltype(n)>{staged, g, count, n, 0}, weight); });
}

inline void WidenRows(Storage storage, const uint16_t* const* rows, float* const* out, size_t count,
                      size_t dim) {
  WithFormat(storage, [=](auto format) HWY_ATTR {
    WithLength(dim, [=](auto n) HWY_ATTR {
      for (size_t r = 0; r < count; ++r) {
        const uint16_t* const from = rows[r];
        float* const to = out[r];
        ForPlaces<kPlainLanes>(to, n, [=](auto at) HWY_ATTR {
          at.PutAsIs(to, decltype(format)::Widen(typename decltype(at)::Tag(), from + at.i));
        });
      }
    });
  });
}

// int64 wraps around; unsigned, where that is defined.
inline void SumIntegers(uint64_t* w, const uint64_t* g, size_t n) {
  const hn::ScalableTag<uint64_t> d;
  size_t i = 0;
  for (; i + hn::MaxLanes(d) <= n; i += hn::MaxLanes(d))
    hn::StoreU(hn::LoadU(d, w + i) + hn::LoadU(d, g + i), d, w + i);
  for (; i < n; ++i) w[i] += g[i];
}

// NaN and infinity are the values whose exponent is all ones: without their sign, the largest of
// all as integers.
inline bool AllBelowArray(const float* values, size_t n, float bound) {
  constexpr size_t kLanes = kPlainLanes;
  const hn::CappedTag<int32_t, kLanes> d;
  const hn::CappedTag<float, kLanes> floats;
  constexpr size_t kPiece = 4096;  // looks at the result now and then: a bad push ends early
  static constexpr int32_t kNoSign = 0x7FFFFFFF;
  const auto limit =
      std::bit_cast<int32_t>(bound);  // positive floats are ordered as their bits, NaN above all
  const auto no_sign = hn::Set(d, kNoSign);
  const auto at = [=](const float* p)
                      HWY_ATTR { return hn::And(hn::BitCast(d, hn::LoadU(floats, p)), no_sign); };
  const auto bad = [=](float value) { return (std::bit_cast<int32_t>(value) & kNoSign) >= limit; };
  size_t i = 0;
  for (const size_t unaligned = std::min(n, Unaligned<kLanes>(values)); i < unaligned; ++i) {
    if (bad(values[i])) return false;
  }
  while (i + 2 * kLanes <= n) {
    const size_t end = std::min(n, i + kPiece);
    auto largest = hn::Zero(d), other = hn::Zero(d);
    for (; i + 2 * kLanes <= end; i += 2 * kLanes) {
      largest = hn::Max(largest, at(values + i));
      other = hn::Max(other, at(values + i + kLanes));
    }
    if (!hn::AllFalse(d, hn::Max(largest, other) > hn::Set(d, limit - 1))) return false;
  }
  for (; i < n; ++i) {
    if (bad(values[i])) return false;
  }
  return true;
}

}  // namespace cairn::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
