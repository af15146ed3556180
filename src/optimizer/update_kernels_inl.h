// The loops of the optimizers for one instruction set, on a span or on rows (`Arrays`: lanes_inl.h
// has both). Only kernels.cc includes this: see lanes_inl.h. What is the same for all elements is
// asked again at each place: the processor foresees it, and square roots and divisions take longer.
#if defined(CAIRN_OPTIMIZER_UPDATE_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CAIRN_OPTIMIZER_UPDATE_KERNELS_INL_H_
#undef CAIRN_OPTIMIZER_UPDATE_KERNELS_INL_H_
#else
#define CAIRN_OPTIMIZER_UPDATE_KERNELS_INL_H_
#endif

#include <cmath>

#include "optimizer/lanes_inl.h"
#include "optimizer/update.h"

HWY_BEFORE_NAMESPACE();
namespace cairn::optimizer::HWY_NAMESPACE {

// torch's lerp: the end that is nearer is the one that is exact.
struct Lerp {
  explicit Lerp(float w) : weight(w), rest(1.0f - w), small(w < 0.5f && w > -0.5f) {}
  template <class At, class V>
  HWY_INLINE V operator()(At at, V from, V to) const {
    const V difference = to - from;
    return small ? from + at.All(weight) * difference : to - difference * at.All(rest);
  }
  float weight, rest;
  bool small;
};

// NaN if either is, as torch.maximum.
template <class V>
HWY_INLINE V Larger(V a, V b) {
  return hn::IfThenElse(hn::Or(a >= b, a != a), a, b);
}

// Weight decay, added to the gradient. Without it nothing is multiplied by 0: an infinite w must
// not become NaN.
struct Decay {
  float weight;
  bool decays;
  template <class At, class V>
  HWY_INLINE V operator()(At at, V g, V w) const {
    return decays ? g + at.All(weight) * w : g;
  }
};

template <class Gradient, class Arrays>
HWY_INLINE void Sum(Gradient of, const Arrays& arrays) {
  arrays.ForEach([=](auto w, const float* g, float* const*, auto n) HWY_ATTR {
    ForPlaces<kPlainLanes>(w, n, [=](auto at) HWY_ATTR { at.Put(w, at.Get(w) + of(at, g)); });
  });
}

template <class Gradient, class Arrays>
HWY_INLINE void Replace(Gradient of, const Arrays& arrays) {
  arrays.ForEach([=](float* w, const float* g, float* const*, auto n) HWY_ATTR {
    ForPlaces<kPlainLanes>(w, n, [=](auto at) HWY_ATTR { at.Put(w, of(at, g)); });
  });
}

template <class Gradient, class Arrays>
HWY_INLINE void Sgd(const StepNumbers& s, Gradient of, const Arrays& arrays) {
  const float rate = s.rate;
  const Decay decay{s.decay, s.decays};
  arrays.ForEach([=](auto w, const float* g, float* const*, auto n) HWY_ATTR {
    ForPlaces<kPlainLanes>(w, n, [=](auto at) HWY_ATTR {
      const auto a = at.Get(w);
      at.Put(w, a - at.All(rate) * decay(at, of(at, g), a));
    });
  });
}

template <class Gradient, class Arrays>
HWY_INLINE void SgdMomentum(const StepNumbers& s, Gradient of, const Arrays& arrays) {
  const float momentum = s.momentum, fresh = s.fresh, rate = s.rate;
  const Decay decay{s.decay, s.decays};
  const bool first = s.step == 1, nesterov = (s.flags & kNesterov) != 0;
  arrays.ForEach([=](float* w, const float* g, float* const* state, auto n) HWY_ATTR {
    float* const buffer = state[0];
    ForPlaces(w, n, [=](auto at) HWY_ATTR {
      const auto a = at.Get(w);
      const auto d = decay(at, of(at, g), a);
      const auto b = first ? d : at.Get(buffer) * at.All(momentum) + at.All(fresh) * d;
      at.Put(buffer, b);
      at.Put(w, a - at.All(rate) * (nesterov ? d + at.All(momentum) * b : b));
    });
  });
}

template <class Gradient, class Arrays>
HWY_INLINE void Adagrad(const StepNumbers& s, Gradient of, const Arrays& arrays) {
  const float rate = s.rate, eps = s.eps;
  const Decay decay{s.decay, s.decays};
  arrays.ForEach([=](auto w, const float* g, float* const* state, auto n) HWY_ATTR {
    float* const sum = state[0];
    ForPlaces(w, n, [=](auto at) HWY_ATTR {
      const auto a = at.Get(w);
      const auto d = decay(at, of(at, g), a);
      const auto total = at.Get(sum) + d * d;
      at.Put(sum, total);
      at.Put(w, a - at.All(rate) * d / (hn::Sqrt(total) + at.All(eps)));
    });
  });
}

// kAdamW multiplies w (s.decay is the factor), kAdam adds to the gradient.
template <class Gradient, class Arrays>
HWY_INLINE void Adam(const StepNumbers& s, Gradient of, const Arrays& arrays) {
  const float beta2 = s.beta2, square = s.square, correction = s.correction, eps = s.eps, rate = s.rate;
  const bool decoupled = s.kind == OptimizerKind::kAdamW, shrinks = s.decays && decoupled;
  const bool amsgrad = (s.flags & kAmsgrad) != 0;
  const float shrink = s.decay;
  const Decay decay{s.decay, s.decays && !decoupled};
  const Lerp lerp(s.lerp);
  arrays.ForEach([=](float* w, const float* g, float* const* state, auto n) HWY_ATTR {
    float* const average = state[0];
    float* const squares = state[1];
    float* const largest = state[2];
    ForPlaces(w, n, [=](auto at) HWY_ATTR {
      auto a = at.Get(w);
      if (shrinks) a = a * at.All(shrink);
      const auto d = decay(at, of(at, g), a);
      const auto m = lerp(at, at.Get(average), d);
      auto v = at.Get(squares) * at.All(beta2) + at.All(square) * d * d;
      at.Put(average, m);
      at.Put(squares, v);
      if (amsgrad) {
        v = Larger(at.Get(largest), v);
        at.Put(largest, v);
      }
      at.Put(w, a - at.All(rate) * m / (hn::Sqrt(v) / at.All(correction) + at.All(eps)));
    });
  });
}

template <class Gradient, class Arrays>
HWY_INLINE void SparseAdam(const StepNumbers& s, Gradient of, const Arrays& arrays) {
  const float lerp = s.lerp, square = s.square, eps = s.eps, rate = s.rate;
  arrays.ForEach([=](auto w, const float* g, float* const* state, auto n) HWY_ATTR {
    float* const average = state[0];
    float* const squares = state[1];
    ForPlaces(w, n, [=](auto at) HWY_ATTR {
      const auto d = of(at, g);
      const auto m_before = at.Get(average), v_before = at.Get(squares);
      const auto m = m_before + (d - m_before) * at.All(lerp);
      const auto v = v_before + (d * d - v_before) * at.All(square);
      at.Put(average, m);
      at.Put(squares, v);
      at.Put(w, at.Get(w) - at.All(rate) * (m / (hn::Sqrt(v) + at.All(eps))));
    });
  });
}

// The sum of a row's squares. Element i goes to sum i % 16, then halves are added to halves: an
// order that has nothing to do with the vectors' length.
template <class Gradient, class Length>
HWY_INLINE float SumOfSquares(Gradient of, const float* g, Length n) {
  constexpr size_t kSums = 16;
  HWY_ALIGN float sums[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    ForPlaces(sums, std::integral_constant<size_t, kSums>{}, [=, &sums](auto at) HWY_ATTR {
      const auto d = of(at, g + i);
      at.PutAsIs(sums, at.Get(sums) + d * d);
    });
  }
  for (; i < n; ++i) {
    const float d = hn::GetLane(of(Place<hn::CappedTag<float, 1>>{i}, g));
    sums[i % kSums] += d * d;
  }
  const auto add = [&sums](auto half) HWY_ATTR {
    ForPlaces(sums, half, [=, &sums](auto at) HWY_ATTR {
      at.PutAsIs(sums, at.Get(sums) + at.Get(sums + decltype(half)::value));
    });
  };
  add(std::integral_constant<size_t, 8>{});
  add(std::integral_constant<size_t, 4>{});
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

template <class Gradient, class Arrays>
HWY_INLINE void RowwiseAdagrad(const StepNumbers& s, Gradient of, const Arrays& arrays) {
  const float rate = s.rate, eps = s.eps;
  arrays.ForEach([=](auto w, const float* g, float* const* state, auto n) HWY_ATTR {
    if (n == 0) return;
    const float total = *state[0] + SumOfSquares(of, g, n) / static_cast<float>(n);
    *state[0] = total == total ? total : std::bit_cast<float>(kCanonicalNan);
    const float size = std::sqrt(total) + eps;
    ForPlaces(w, n,
              [=](auto at) HWY_ATTR { at.Put(w, at.Get(w) - at.All(rate) * of(at, g) / at.All(size)); });
  });
}

template <class Gradient, class Arrays>
HWY_INLINE void Ftrl(const StepNumbers& s, Gradient of, const Arrays& arrays) {
  const float alpha = s.rate, beta = s.beta2, l1 = s.l1, l2 = s.decay;
  arrays.ForEach([=](auto w, const float* g, float* const* state, auto n) HWY_ATTR {
    float* const z_of = state[0];
    float* const n_of = state[1];
    ForPlaces(w, n, [=](auto at) HWY_ATTR {
      const auto d = of(at, g);
      const auto before = at.Get(n_of);
      const auto total = before + d * d;
      const auto root = hn::Sqrt(total);
      const auto sigma = (root - hn::Sqrt(before)) / at.All(alpha);
      const auto z = at.Get(z_of) + (d - sigma * at.Get(w));
      at.Put(n_of, total);
      at.Put(z_of, z);
      const auto zero = at.All(0.0f), limit = at.All(l1);
      const auto towards = hn::IfThenElse(z > zero, limit, hn::Neg(limit));  // l1 with the sign of z
      const auto moved = hn::Neg(z - towards) / ((at.All(beta) + root) / at.All(alpha) + at.All(l2));
      at.Put(w, hn::IfThenElse(hn::Abs(z) <= limit, zero, moved));
    });
  });
}

template <class Gradient, class Arrays>
HWY_INLINE void Rmsprop(const StepNumbers& s, Gradient of, const Arrays& arrays) {
  const float alpha = s.beta2, square = s.square, eps = s.eps, momentum = s.momentum, rate = s.rate;
  const Decay decay{s.decay, s.decays};
  const Lerp lerp(s.lerp);
  const bool centered = (s.flags & kCentered) != 0, with_momentum = s.has_momentum;
  const size_t average_column = (s.flags & kWithMomentum) != 0 ? 2 : 1;
  arrays.ForEach([=](float* w, const float* g, float* const* state, auto n) HWY_ATTR {
    float* const squares = state[0];
    float* const buffer = state[1];
    float* const average = state[average_column];
    ForPlaces(w, n, [=](auto at) HWY_ATTR {
      const auto a = at.Get(w);
      const auto d = decay(at, of(at, g), a);
      auto v = at.Get(squares) * at.All(alpha) + at.All(square) * d * d;
      at.Put(squares, v);
      if (centered) {
        const auto m = lerp(at, at.Get(average), d);
        at.Put(average, m);
        v = v - m * m;
      }
      const auto size = hn::Sqrt(v) + at.All(eps);
      if (with_momentum) {
        const auto b = at.Get(buffer) * at.All(momentum) + d / size;
        at.Put(buffer, b);
        at.Put(w, a - at.All(rate) * b);
      } else {
        at.Put(w, a - at.All(rate) * d / size);
      }
    });
  });
}

template <class Gradient, class Arrays>
HWY_INLINE void UpdateWithState(const StepNumbers& s, Gradient of, const Arrays& arrays) {
  switch (s.kind) {
    case OptimizerKind::kSgd: return SgdMomentum(s, of, arrays);
    case OptimizerKind::kAdagrad: return Adagrad(s, of, arrays);
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW: return Adam(s, of, arrays);
    case OptimizerKind::kRmsprop: return Rmsprop(s, of, arrays);
    case OptimizerKind::kSparseAdam: return SparseAdam(s, of, arrays);
    case OptimizerKind::kRowwiseAdagrad: return RowwiseAdagrad(s, of, arrays);
    case OptimizerKind::kFtrl: return Ftrl(s, of, arrays);
    case OptimizerKind::kSum:
    case OptimizerKind::kMean:
    case OptimizerKind::kFirst: return;  // no state
  }
}

template <class Gradient, class Arrays>
HWY_INLINE void UpdateWithoutState(const StepNumbers& s, Gradient of, const Arrays& arrays) {
  switch (s.kind) {
    case OptimizerKind::kSum: return Sum(of, arrays);
    case OptimizerKind::kMean: return Replace(of, arrays);
    case OptimizerKind::kSgd: return Sgd(s, of, arrays);
    case OptimizerKind::kAdagrad:
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
    case OptimizerKind::kRmsprop:
    case OptimizerKind::kSparseAdam:
    case OptimizerKind::kRowwiseAdagrad:
    case OptimizerKind::kFtrl:
    case OptimizerKind::kFirst: return;  // HasState says that they have some; kFirst is not of float32
  }
}
inline bool HasState(const StepNumbers& s) {
  if (s.kind == OptimizerKind::kSgd) return s.has_momentum;
  return s.kind != OptimizerKind::kSum && s.kind != OptimizerKind::kMean;
}

inline void Update(const StepNumbers& s, const OfMean& gradient, float* w, const float* g,
                   float* const* state, size_t n) {
  float* const none[kMaxStateColumns] = {};
  const Span span{w, g, state == nullptr ? none : state, n};
  WithGradient(gradient, [&](auto of) HWY_ATTR {
    if (HasState(s)) return UpdateWithState(s, of, span);
    UpdateWithoutState(s, of, span);
  });
}

template <class Gradient, class Arrays>
HWY_INLINE void UpdateNarrowWithState(const StepNumbers& s, Gradient of, const Arrays& arrays) {
  switch (s.kind) {
    case OptimizerKind::kAdagrad: return Adagrad(s, of, arrays);
    case OptimizerKind::kSparseAdam: return SparseAdam(s, of, arrays);
    case OptimizerKind::kRowwiseAdagrad: return RowwiseAdagrad(s, of, arrays);
    case OptimizerKind::kFtrl: return Ftrl(s, of, arrays);
    case OptimizerKind::kSgd:
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
    case OptimizerKind::kRmsprop:  // dense tables alone have these with state
    case OptimizerKind::kSum:
    case OptimizerKind::kMean:
    case OptimizerKind::kFirst: return;  // no state
  }
}

inline void UpdateNarrowRows(const NarrowRowStep& step, uint16_t* const* rows, const uint64_t* seeds,
                             const float* const* gradients, size_t count) {
  const StepNumbers& s = step.numbers;
  WithFormat(step.storage, [&](auto format) HWY_ATTR {
    using Format = decltype(format);
    WithGradient(step.gradient, [&](auto of) HWY_ATTR {
      if (HasState(s)) {
        const size_t width = s.kind == OptimizerKind::kRowwiseAdagrad ? 1 : step.dim;
        return UpdateNarrowWithState(
            s, of, NarrowRows<Format, size_t>{rows, seeds, gradients, count, step.dim, width});
      }
      WithLength(step.dim, [&](auto dim) HWY_ATTR {
        const NarrowRows<Format, decltype(dim)> arrays{rows, seeds, gradients, count, dim, 0};
        if (s.kind == OptimizerKind::kSum) return Sum(of, arrays);
        Sgd(s, of, arrays);
      });
    });
  });
}

inline void UpdateRows(const RowStep& step, float* const* rows, const float* const* gradients, size_t count) {
  const StepNumbers& s = step.numbers;
  WithGradient(step.gradient, [&](auto of) HWY_ATTR {
    if (HasState(s)) {
      const size_t width = s.kind == OptimizerKind::kRowwiseAdagrad ? 1 : step.dim;
      return UpdateWithState(s, of, Rows<size_t>{rows, gradients, count, step.dim, width});
    }
    WithLength(step.dim, [&](auto dim) HWY_ATTR {
      UpdateWithoutState(s, of, Rows<decltype(dim)>{rows, gradients, count, dim, 0});
    });
  });
}

}  // namespace cairn::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
