#include "cairn/optimizer.h"

#include <utility>

namespace cairn {
namespace {

uint32_t FlagIf(bool given, OptimizerFlag flag) { return given ? uint32_t{flag} : 0; }

// Adam, AdamW and SparseAdam read the same numbers.
template <typename Options>
Hyper AdamHyper(const Options& o) {
  Hyper hyper{.lr = o.lr, .beta1 = o.beta1, .beta2 = o.beta2, .eps = o.eps};
  if constexpr (requires { o.weight_decay; }) hyper.weight_decay = o.weight_decay;
  return hyper;
}

}  // namespace

Optimizer Optimizer::Sgd(const SgdOptions& o) {
  return {
      .kind = OptimizerKind::kSgd,
      .flags = FlagIf(o.momentum != 0, kWithMomentum) | FlagIf(o.nesterov, kNesterov) |
               FlagIf(o.maximize, kMaximize),
      .hyper = {.lr = o.lr, .weight_decay = o.weight_decay, .beta1 = o.momentum, .dampening = o.dampening}};
}

Optimizer Optimizer::Adagrad(const AdagradOptions& o) {
  return {.kind = OptimizerKind::kAdagrad,
          .flags = FlagIf(o.maximize, kMaximize),
          .initial_state = o.initial_accumulator_value,
          .hyper = {.lr = o.lr, .weight_decay = o.weight_decay, .eps = o.eps, .dampening = o.lr_decay}};
}

Optimizer Optimizer::Adam(const AdamOptions& o) {
  return {.kind = OptimizerKind::kAdam,
          .flags = FlagIf(o.amsgrad, kAmsgrad) | FlagIf(o.maximize, kMaximize),
          .hyper = AdamHyper(o)};
}

Optimizer Optimizer::AdamW(const AdamWOptions& o) {
  return {.kind = OptimizerKind::kAdamW,
          .flags = FlagIf(o.amsgrad, kAmsgrad) | FlagIf(o.maximize, kMaximize),
          .hyper = AdamHyper(o)};
}

Optimizer Optimizer::Rmsprop(const RmspropOptions& o) {
  return {
      .kind = OptimizerKind::kRmsprop,
      .flags = FlagIf(o.momentum != 0, kWithMomentum) | FlagIf(o.centered, kCentered) |
               FlagIf(o.maximize, kMaximize),
      .hyper = {
          .lr = o.lr, .weight_decay = o.weight_decay, .beta1 = o.momentum, .beta2 = o.alpha, .eps = o.eps}};
}

Optimizer Optimizer::SparseAdam(const SparseAdamOptions& o) {
  return {.kind = OptimizerKind::kSparseAdam, .flags = FlagIf(o.maximize, kMaximize), .hyper = AdamHyper(o)};
}

Optimizer Optimizer::RowwiseAdagrad(const RowwiseAdagradOptions& o) {
  return {.kind = OptimizerKind::kRowwiseAdagrad,
          .flags = FlagIf(o.maximize, kMaximize),
          .initial_state = o.initial_accumulator_value,
          .hyper = {.lr = o.lr, .eps = o.eps}};
}

Optimizer Optimizer::Ftrl(const FtrlOptions& o) {
  return {.kind = OptimizerKind::kFtrl,
          .flags = FlagIf(o.maximize, kMaximize),
          .initial_state = o.initial_accumulator_value,
          .hyper = {.lr = o.lr, .weight_decay = o.l2, .beta1 = o.l1, .beta2 = o.beta}};
}

TableSpec Optimizer::For(TableSpec spec) const {
  spec.optimizer = kind;
  // What is not the optimizer's stays: whether a round sums or averages.
  spec.optimizer_flags = (spec.optimizer_flags & kReduceSum) | flags;
  spec.initial_state = initial_state;
  return spec;
}

}  // namespace cairn
