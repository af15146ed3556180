// The optimizers once more, slowly: one element at a time, one operation a line, in the words of
// torch.optim's documentation. Only tests include this: it is what update.h must agree with, bit
// for bit.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cairn/types.h"

namespace cairn::optimizer {

inline float ReferenceCanonical(float x) { return std::isnan(x) ? std::bit_cast<float>(0x7FC00000u) : x; }

inline double ReferencePower(double base, uint64_t n) {
  if (n == 0) return 1.0;
  // The top bit first or last differs in rounding: last, as a loop over the bits from below has it.
  double result = 1.0, square = base;
  for (uint64_t bit = 1; bit != 0 && bit <= n; bit <<= 1) {
    if (n & bit) result = result * square;
    square = square * square;
  }
  return result;
}

inline float ReferenceLerp(float a, float b, float weight) {
  const float difference = b - a;
  if (std::fabs(weight) < 0.5f) {
    const float part = weight * difference;
    return a + part;
  }
  const float rest = 1.0f - weight;
  const float part = difference * rest;
  return b - part;
}

// One element and its state: state[i] is column i + 1.
struct ReferenceElement {
  float w = 0;
  float state[3] = {};
};

// `step` counts from 1; `g` is the gradient as the optimizer sees it, before kMaximize.
inline void ReferenceUpdate(OptimizerKind kind, uint32_t flags, const Hyper& h, uint64_t step, float g,
                            ReferenceElement& e) {
  if (flags & kMaximize) g = -g;
  const auto round = [](double x) { return static_cast<float>(x); };
  if (kind == OptimizerKind::kAdamW && h.weight_decay != 0) {
    e.w = e.w * round(1 - h.lr * h.weight_decay);
  } else if (kind != OptimizerKind::kSum && kind != OptimizerKind::kMean &&
             kind != OptimizerKind::kSparseAdam && kind != OptimizerKind::kFtrl && h.weight_decay != 0) {
    const float decay = round(h.weight_decay) * e.w;
    g = g + decay;
  }
  switch (kind) {
    case OptimizerKind::kSum: e.w = e.w + g; break;
    case OptimizerKind::kMean: e.w = g; break;
    case OptimizerKind::kSgd: {
      if ((flags & kWithMomentum) && h.beta1 != 0) {
        float& buffer = e.state[0];
        if (step == 1) {
          buffer = g;
        } else {
          const float old = buffer * round(h.beta1);
          const float added = round(1 - h.dampening) * g;
          buffer = old + added;
        }
        if (flags & kNesterov) {
          const float ahead = round(h.beta1) * buffer;
          g = g + ahead;
        } else {
          g = buffer;
        }
      }
      const float change = round(h.lr) * g;
      e.w = e.w - change;
      break;
    }
    case OptimizerKind::kAdagrad: {
      const double rate = h.lr / (1 + static_cast<double>(step - 1) * h.dampening);
      const float square = g * g;
      e.state[0] = e.state[0] + square;
      const float root = std::sqrt(e.state[0]);
      const float size = root + round(h.eps);
      const float scaled = round(rate) * g;
      const float change = scaled / size;
      e.w = e.w - change;
      break;
    }
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW: {
      e.state[0] = ReferenceLerp(e.state[0], g, round(1 - h.beta1));
      const float old = e.state[1] * round(h.beta2);
      const float weighted = round(1 - h.beta2) * g;
      const float added = weighted * g;
      e.state[1] = old + added;
      float v = e.state[1];
      if (flags & kAmsgrad) {
        if (std::isnan(v) || v > e.state[2]) e.state[2] = v;
        v = e.state[2];
      }
      const double correction1 = 1 - ReferencePower(h.beta1, step);
      const double correction2 = 1 - ReferencePower(h.beta2, step);
      const float root = std::sqrt(v);
      const float corrected = root / round(std::sqrt(correction2));
      const float size = corrected + round(h.eps);
      const float scaled = round(h.lr / correction1) * e.state[0];
      const float change = scaled / size;
      e.w = e.w - change;
      break;
    }
    case OptimizerKind::kRmsprop: {
      const float old = e.state[0] * round(h.beta2);
      const float weighted = round(1 - h.beta2) * g;
      const float added = weighted * g;
      e.state[0] = old + added;
      float v = e.state[0];
      if (flags & kCentered) {
        float& average = e.state[flags & kWithMomentum ? 2 : 1];
        average = ReferenceLerp(average, g, round(1 - h.beta2));
        const float square = average * average;
        v = v - square;
      }
      const float root = std::sqrt(v);
      const float size = root + round(h.eps);
      if ((flags & kWithMomentum) && h.beta1 > 0) {
        const float kept = e.state[1] * round(h.beta1);
        const float part = g / size;
        e.state[1] = kept + part;
        const float change = round(h.lr) * e.state[1];
        e.w = e.w - change;
      } else {
        const float scaled = round(h.lr) * g;
        const float change = scaled / size;
        e.w = e.w - change;
      }
      break;
    }
    case OptimizerKind::kSparseAdam: {
      const float m_part = (g - e.state[0]) * round(1 - h.beta1);
      e.state[0] = e.state[0] + m_part;
      const float square = g * g;
      const float v_part = (square - e.state[1]) * round(1 - h.beta2);
      e.state[1] = e.state[1] + v_part;
      const double correction1 = 1 - ReferencePower(h.beta1, step);
      const double correction2 = 1 - ReferencePower(h.beta2, step);
      const float size = std::sqrt(e.state[1]) + round(h.eps);
      const float direction = e.state[0] / size;
      const float change = round(h.lr * std::sqrt(correction2) / correction1) * direction;
      e.w = e.w - change;
      break;
    }
    case OptimizerKind::kFtrl: {
      float& z = e.state[0];
      float& n = e.state[1];
      const float square = g * g;
      const float total = n + square;
      const float growth = std::sqrt(total) - std::sqrt(n);
      const float sigma = growth / round(h.lr);
      const float kept = sigma * e.w;
      const float part = g - kept;
      z = z + part;
      n = total;
      const float l1 = round(h.beta1);
      if (std::fabs(z) <= l1) {
        e.w = 0.0f;
      } else {
        const float beyond = z > 0 ? z - l1 : z + l1;
        const float strength = (round(h.beta2) + std::sqrt(n)) / round(h.lr);
        const float size = strength + round(h.weight_decay);
        e.w = -beyond / size;
      }
      break;
    }
    case OptimizerKind::kRowwiseAdagrad:  // a row at a time: ReferenceRowwiseAdagrad
    case OptimizerKind::kFirst: break;    // int64 only
  }
  e.w = ReferenceCanonical(e.w);
  for (float& s : e.state) s = ReferenceCanonical(s);
}

// One row of kRowwiseAdagrad; gradients as above.
inline void ReferenceRowwiseAdagrad(uint32_t flags, const Hyper& h, const std::vector<float>& gradients,
                                    std::vector<float>& w, float& sum) {
  float sums[16] = {};
  for (size_t i = 0; i < gradients.size(); ++i) {
    const float square = gradients[i] * gradients[i];
    sums[i % 16] = sums[i % 16] + square;
  }
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) sums[i] = sums[i] + sums[i + half];
  }
  const float mean = sums[0] / static_cast<float>(gradients.size());
  sum = sum + mean;
  const float size = std::sqrt(sum) + static_cast<float>(h.eps);
  for (size_t i = 0; i < w.size(); ++i) {
    const float g = flags & kMaximize ? -gradients[i] : gradients[i];
    const float scaled = static_cast<float>(h.lr) * g;
    const float change = scaled / size;
    w[i] = ReferenceCanonical(w[i] - change);
  }
  sum = ReferenceCanonical(sum);
}

// The gradient of a round as the optimizer sees it.
inline float ReferenceGradient(float sum, double divisor, double scale) {
  const auto by = static_cast<float>(divisor);
  const float mean = by == 1.0f ? sum : sum / by;
  return scale == 1.0 ? mean : mean * static_cast<float>(scale);
}

// Every optimizer that works element by element, with every set of flags that a table can have, and
// hyper-parameters with which all of them matter.
struct ReferenceCase {
  const char* name;
  OptimizerKind kind;
  uint32_t flags;
  Hyper hyper;
};
inline std::vector<ReferenceCase> ReferenceCases() {
  using enum OptimizerKind;
  const Hyper sgd{.lr = 0.1, .weight_decay = 0.01, .beta1 = 0.9, .dampening = 0.3};
  const Hyper adagrad{.lr = 0.05, .weight_decay = 0.02, .eps = 1e-10, .dampening = 0.1};
  const Hyper adam{.lr = 0.003, .weight_decay = 0.05, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
  // A beta2 with which the largest square is not the newest one.
  const Hyper amsgrad{.lr = 0.003, .weight_decay = 0.05, .beta1 = 0.9, .beta2 = 0.5, .eps = 1e-8};
  const Hyper rmsprop{.lr = 0.01, .weight_decay = 0.03, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-8};
  std::vector<ReferenceCase> cases = {
      {"sum", kSum, 0, {}},
      {"mean", kMean, 0, {}},
      {"sgd", kSgd, 0, sgd},
      {"sgd, momentum", kSgd, kWithMomentum, sgd},
      {"sgd, nesterov", kSgd, kWithMomentum | kNesterov, sgd},
      {"sgd, momentum of 0", kSgd, kWithMomentum, {.lr = 0.1}},
      {"adagrad", kAdagrad, 0, adagrad},
      {"adam", kAdam, 0, adam},
      {"adam, amsgrad", kAdam, kAmsgrad, amsgrad},
      {"adam, heavy lerp", kAdam, 0, {.lr = 0.01, .beta1 = 0.3, .beta2 = 0.4, .eps = 1e-3}},
      {"adamw", kAdamW, 0, adam},
      {"adamw, amsgrad", kAdamW, kAmsgrad, amsgrad},
      {"adamw, no decay", kAdamW, 0, {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8}},
      {"rmsprop", kRmsprop, 0, rmsprop},
      {"rmsprop, momentum", kRmsprop, kWithMomentum, rmsprop},
      {"rmsprop, centered", kRmsprop, kCentered, rmsprop},
      {"rmsprop, both", kRmsprop, kCentered | kWithMomentum, rmsprop},
      {"sparse_adam", kSparseAdam, 0, {.lr = 0.003, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}},
      {"ftrl", kFtrl, 0, {.lr = 0.1, .weight_decay = 0.2, .beta1 = 0.05, .beta2 = 1.0}},
      {"ftrl, no l1 and l2", kFtrl, 0, {.lr = 0.1, .beta2 = 0.5}},
      {"rmsprop, light alpha", kRmsprop, kCentered, {.lr = 0.01, .beta2 = 0.3, .eps = 1e-2}},
      {"rmsprop, both, momentum 0 now",
       kRmsprop,
       kCentered | kWithMomentum,
       {.lr = 0.01, .beta2 = 0.4, .eps = 1e-2}},
  };
  const size_t plain = cases.size();
  for (size_t i = 0; i < plain; ++i) {
    if (cases[i].kind == kSum || cases[i].kind == kMean) continue;
    cases.push_back(cases[i]);
    cases.back().flags |= kMaximize;
  }
  return cases;
}

}  // namespace cairn::optimizer
