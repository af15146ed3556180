// Numbers of 16 bits (narrow.h) as many at a time as an instruction set has room for. Only kernels.cc
// includes this: see lanes_inl.h.
#if defined(CAIRN_OPTIMIZER_NARROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CAIRN_OPTIMIZER_NARROW_INL_H_
#undef CAIRN_OPTIMIZER_NARROW_INL_H_
#else
#define CAIRN_OPTIMIZER_NARROW_INL_H_
#endif

#include <hwy/highway.h>

#include "optimizer/narrow.h"

HWY_BEFORE_NAMESPACE();
namespace cairn::optimizer::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Signed, since not every instruction set can compare unsigned numbers; all are below 2^31.
template <class D>
using Integers = hn::Rebind<int32_t, D>;

// narrow.h: RoundingBits, for the columns from `column` on.
template <class D>
HWY_INLINE hn::Vec<Integers<D>> RandomBits(D, uint64_t row_seed, size_t column) {
  const hn::Rebind<uint32_t, D> d;
  auto x = hn::Iota(d, static_cast<uint32_t>(column)) * hn::Set(d, 0x9E3779B9u) +
           hn::Set(d, static_cast<uint32_t>(row_seed));
  x = hn::Xor(x, hn::ShiftRight<16>(x)) * hn::Set(d, 0x21F0AAADu);
  x = hn::Xor(x, hn::Set(d, static_cast<uint32_t>(row_seed >> 32)));
  x = hn::Xor(x, hn::ShiftRight<15>(x)) * hn::Set(d, 0x735A2D97u);
  x = hn::Xor(x, hn::ShiftRight<15>(x));
  return hn::BitCast(Integers<D>(), hn::ShiftRight<1>(x));  // 31 of them: what is shifted has no sign
}

// What both formats do alike: signs, infinities, NaN and what is too large. `rounded` is what a
// finite number is, without its sign.
template <class D, class V>
HWY_INLINE void StoreNarrow(D, const NarrowFormat& format, V bits, V rounded, uint16_t* out) {
  const Integers<D> d;
  const auto all = [d](uint32_t number) HWY_ATTR { return hn::Set(d, static_cast<int32_t>(number)); };
  const V infinity = all(kFloatInfinity), plain = hn::And(bits, all(0x7FFFFFFF));
  const V sign = hn::And(hn::ShiftRight<16>(bits), all(0x8000));
  V stored = hn::Min(rounded, all(format.largest));
  stored = hn::IfThenElse(plain == infinity, all(format.infinity), stored);
  stored = hn::Or(stored, sign);
  stored = hn::IfThenElse(plain > infinity, all(format.nan), stored);
  hn::StoreU(hn::DemoteTo(hn::Rebind<uint16_t, D>(), stored), hn::Rebind<uint16_t, D>(), out);
}
template <class D>
HWY_INLINE hn::Vec<Integers<D>> LoadNarrow(D, const uint16_t* stored) {
  return hn::PromoteTo(Integers<D>(), hn::LoadU(hn::Rebind<uint16_t, D>(), stored));
}

struct Bfloat16 {
  template <class D>
  static HWY_INLINE hn::Vec<D> Widen(D d, const uint16_t* stored) {
    return hn::BitCast(d, hn::ShiftLeft<16>(LoadNarrow(d, stored)));
  }
  template <class D>
  static HWY_INLINE void NarrowAtRandom(D d, hn::Vec<D> value, hn::Vec<Integers<D>> random, uint16_t* out) {
    const Integers<D> di;
    const auto bits = hn::BitCast(di, value), plain = hn::And(bits, hn::Set(di, 0x7FFFFFFF));
    // The sum of NaNs may wrap around: they are replaced.
    StoreNarrow(d, kBfloat16Format, bits, hn::ShiftRight<16>(plain + hn::ShiftRight<15>(random)), out);
  }
};

struct Float16 {
  template <class D>
  static HWY_INLINE hn::Vec<D> Widen(D d, const uint16_t* stored) {
    const Integers<D> di;
    const auto all = [di](uint32_t number) HWY_ATTR { return hn::Set(di, static_cast<int32_t>(number)); };
    const auto given = LoadNarrow(d, stored);
    const auto bits = hn::And(given, all(0x7FFF));
    const auto sign = hn::ShiftLeft<16>(hn::And(given, all(0x8000)));
    const auto small = hn::BitCast(di, hn::ConvertTo(d, bits) * hn::Set(d, 0x1p-24f));
    auto wide = hn::IfThenElse(bits < all(0x400), small, hn::ShiftLeft<13>(bits + all(kFloat16Rebias)));
    wide = hn::IfThenElse(bits < all(kFloat16Format.infinity), wide,
                          hn::Or(hn::ShiftLeft<13>(bits), all(kFloatInfinity)));
    return hn::BitCast(d, hn::Or(wide, sign));
  }
  template <class D>
  static HWY_INLINE void NarrowAtRandom(D d, hn::Vec<D> value, hn::Vec<Integers<D>> random, uint16_t* out) {
    const Integers<D> di;
    const auto bits = hn::BitCast(di, value), plain = hn::And(bits, hn::Set(di, 0x7FFFFFFF));
    const auto is_small = plain < hn::Set(di, kFloat16Normal);
    const auto normal = hn::ShiftRight<13>(plain + hn::ShiftRight<18>(random)) - hn::Set(di, kFloat16Rebias);
    const auto steps =
        hn::ConvertTo(di, hn::BitCast(d, hn::IfThenElseZero(is_small, plain)) * hn::Set(d, kFloat16Steps));
    const auto small =
        hn::ShiftRight<kFloat16StepBits>(steps + hn::ShiftRight<31 - kFloat16StepBits>(random));
    StoreNarrow(d, kFloat16Format, bits, hn::IfThenElse(is_small, small, normal), out);
  }
};

// A row's values and what decides how they are rounded: in the place of an array of floats, for the
// loops of update_kernels_inl.h.
template <class Format>
struct NarrowRow {
  uint16_t* values;
  uint64_t seed;
};

template <class F>
HWY_INLINE void WithFormat(Storage storage, const F& f) {
  if (storage == Storage::kBfloat16) return f(Bfloat16{});
  return f(Float16{});
}

}  // namespace cairn::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
