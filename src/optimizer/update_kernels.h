// The loops of the optimizers with state, four elements at a time. What is decided once for all
// elements is a template argument, so that no element has a branch. Only update.cc includes this.
#pragma once

#include <type_traits>

#include "optimizer/update.h"

namespace cairn::optimizer {

// f(true_type) or f(false_type).
template <class F>
inline void WithFlag(bool flag, F f) {
  if (flag) return f(std::true_type{});
  return f(std::false_type{});
}

// torch's lerp: the end that is nearer is the one that is exact.
template <class Small, class T>
inline T Lerp(Small, T from, T to, float weight) {
  if constexpr (Small::value) return from + weight * (to - from);
  return to - (to - from) * (1.0f - weight);
}
inline bool IsSmall(float weight) { return weight < 0.5f && weight > -0.5f; }

// NaN if either is, as torch.maximum.
template <class T>
inline T Larger(T a, T b) {
  return (a >= b) | (a != a) ? a : b;
}

// The gradient with weight decay added to it.
template <class Decays, class T>
inline T Decayed(Decays, T g, T w, float decay) {
  if constexpr (Decays::value) return g + decay * w;
  return g;
}

template <class Gradient>
void SgdMomentum(const StepNumbers& s, Gradient of, float* __restrict w, const float* __restrict g,
                 float* __restrict buffer, size_t n) {
  WithFlag(s.decays, [&](auto decays) {
    WithFlag(s.step == 1, [&](auto first) {
      WithFlag((s.flags & kNesterov) != 0, [&](auto nesterov) {
        const float decay = s.decay, momentum = s.momentum, fresh = s.fresh, rate = s.rate;
        ForPlaces(n, [=](auto at) {
          const auto a = at.Get(w);
          auto d = Decayed(decays, of(at.Get(g)), a, decay);
          auto b = d;
          if constexpr (!decltype(first)::value) b = at.Get(buffer) * momentum + fresh * d;
          at.Put(buffer, Canonical(b));
          if constexpr (decltype(nesterov)::value) {
            d = d + momentum * b;
          } else {
            d = b;
          }
          at.Put(w, Canonical(a - rate * d));
        });
      });
    });
  });
}

template <class Gradient>
void Adagrad(const StepNumbers& s, Gradient of, float* __restrict w, const float* __restrict g,
             float* __restrict sum, size_t n) {
  WithFlag(s.decays, [&](auto decays) {
    const float decay = s.decay, rate = s.rate, eps = s.eps;
    ForPlaces(n, [=](auto at) {
      const auto a = at.Get(w);
      const auto d = Decayed(decays, of(at.Get(g)), a, decay);
      const auto total = at.Get(sum) + d * d;
      at.Put(sum, Canonical(total));
      at.Put(w, Canonical(a - rate * d / (Root(total) + eps)));
    });
  });
}

// kAdamW multiplies w (s.decay is the factor), kAdam adds to the gradient. `largest` is null
// without kAmsgrad.
template <class Gradient>
void Adam(const StepNumbers& s, Gradient of, float* __restrict w, const float* __restrict g,
          float* __restrict average, float* __restrict squares, float* __restrict largest, size_t n) {
  const bool decoupled = s.kind == OptimizerKind::kAdamW;
  WithFlag(s.decays && decoupled, [&](auto shrinks) {
    WithFlag(s.decays && !decoupled, [&](auto decays) {
      WithFlag(IsSmall(s.lerp), [&](auto small) {
        WithFlag(largest != nullptr, [&](auto amsgrad) {
          const float decay = s.decay, lerp = s.lerp, beta2 = s.beta2, square = s.square;
          const float correction = s.correction, eps = s.eps, rate = s.rate;
          ForPlaces(n, [=](auto at) {
            auto a = at.Get(w);
            if constexpr (decltype(shrinks)::value) a = a * decay;
            const auto d = Decayed(decays, of(at.Get(g)), a, decay);
            const auto m = Lerp(small, at.Get(average), d, lerp);
            auto v = at.Get(squares) * beta2 + square * d * d;
            at.Put(average, Canonical(m));
            at.Put(squares, Canonical(v));
            if constexpr (decltype(amsgrad)::value) {
              v = Larger(at.Get(largest), v);
              at.Put(largest, Canonical(v));
            }
            at.Put(w, Canonical(a - rate * m / (Root(v) / correction + eps)));
          });
        });
      });
    });
  });
}

template <class Gradient>
void SparseAdam(const StepNumbers& s, Gradient of, float* __restrict w, const float* __restrict g,
                float* __restrict average, float* __restrict squares, size_t n) {
  const float lerp = s.lerp, square = s.square, eps = s.eps, rate = s.rate;
  ForPlaces(n, [=](auto at) {
    const auto d = of(at.Get(g));
    const auto m_before = at.Get(average), v_before = at.Get(squares);
    const auto m = m_before + (d - m_before) * lerp;
    const auto v = v_before + (d * d - v_before) * square;
    at.Put(average, Canonical(m));
    at.Put(squares, Canonical(v));
    at.Put(w, Canonical(at.Get(w) - rate * (m / (Root(v) + eps))));
  });
}

// The mean of the squares is taken from left to right: four sums side by side would be another
// number.
template <class Gradient>
void RowwiseAdagrad(const StepNumbers& s, Gradient of, float* __restrict w, const float* __restrict g,
                    float* __restrict sum, size_t n) {
  if (n == 0) return;
  float squares = 0;
  for (size_t i = 0; i < n; ++i) {
    const float d = of(g[i]);
    squares = squares + d * d;
  }
  const float total = *sum + squares / static_cast<float>(n);
  *sum = Canonical(total);
  const float rate = s.rate, size = Root(total) + s.eps;
  ForPlaces(n, [=](auto at) { at.Put(w, Canonical(at.Get(w) - rate * of(at.Get(g)) / size)); });
}

template <class Gradient>
void Ftrl(const StepNumbers& s, Gradient of, float* __restrict w, const float* __restrict g,
          float* __restrict z_of, float* __restrict n_of, size_t n) {
  const float alpha = s.rate, beta = s.beta2, l1 = s.l1, l2 = s.decay;
  ForPlaces(n, [=](auto at) {
    const auto d = of(at.Get(g));
    const auto before = at.Get(n_of);
    const auto total = before + d * d;
    const auto root = Root(total);
    const auto sigma = (root - Root(before)) / alpha;
    const auto z = at.Get(z_of) + (d - sigma * at.Get(w));
    at.Put(n_of, Canonical(total));
    at.Put(z_of, Canonical(z));
    const decltype(z - z) zero = {}, limit = zero + l1;
    const auto towards = z > zero ? limit : -limit;  // l1 with the sign of z
    const auto moved = -(z - towards) / ((beta + root) / alpha + l2);
    at.Put(w, Canonical((z > zero ? z : -z) <= limit ? zero : moved));
  });
}

// `buffer` is null without momentum, `average` without kCentered.
template <class Gradient>
void Rmsprop(const StepNumbers& s, Gradient of, float* __restrict w, const float* __restrict g,
             float* __restrict squares, float* __restrict buffer, float* __restrict average, size_t n) {
  WithFlag(s.decays, [&](auto decays) {
    WithFlag(buffer != nullptr, [&](auto with_momentum) {
      WithFlag(average != nullptr, [&](auto centered) {
        WithFlag(IsSmall(s.lerp), [&](auto small) {
          const float decay = s.decay, lerp = s.lerp, alpha = s.beta2, square = s.square;
          const float eps = s.eps, momentum = s.momentum, rate = s.rate;
          ForPlaces(n, [=](auto at) {
            const auto a = at.Get(w);
            const auto d = Decayed(decays, of(at.Get(g)), a, decay);
            auto v = at.Get(squares) * alpha + square * d * d;
            at.Put(squares, Canonical(v));
            if constexpr (decltype(centered)::value) {
              const auto m = Lerp(small, at.Get(average), d, lerp);
              at.Put(average, Canonical(m));
              v = v - m * m;
            }
            const auto size = Root(v) + eps;
            if constexpr (decltype(with_momentum)::value) {
              const auto b = at.Get(buffer) * momentum + d / size;
              at.Put(buffer, Canonical(b));
              at.Put(w, Canonical(a - rate * b));
            } else {
              at.Put(w, Canonical(a - rate * d / size));
            }
          });
        });
      });
    });
  });
}

}  // namespace cairn::optimizer
