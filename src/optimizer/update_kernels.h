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
