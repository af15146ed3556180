// torch's optimizers by torch's names and defaults, as the servers know them. What decides which state a
// table keeps goes into its spec; the numbers travel with every push and may change every step.
//
//   cairn::Optimizer adam = cairn::Optimizer::Adam({.lr = 1e-3});
//   cairn::DenseTable table = client->CreateDense(adam.For({.name = "w", .size = 7850})).value();
//   table.Push(gradient, {.hyper = adam.hyper});
#pragma once

#include <cstdint>

#include "cairn/types.h"

namespace cairn {

struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
};
struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;
  double weight_decay = 0;
  float initial_accumulator_value = 0;
  double eps = 1e-10;
  bool maximize = false;
};
struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
  bool maximize = false;
};
struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;
  bool maximize = false;
};
struct RmspropOptions {
  double lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;
  bool maximize = false;
};
// The next three are for sparse tables; FTRL is for dense ones too.
struct SparseAdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  bool maximize = false;
};
struct RowwiseAdagradOptions {
  double lr = 1e-2;
  double eps = 1e-10;
  float initial_accumulator_value = 0;
  bool maximize = false;
};
struct FtrlOptions {
  double lr = 0.1;  // α of the rate α / (β + √n)
  double beta = 1.0;
  double l1 = 0;
  double l2 = 0;
  float initial_accumulator_value = 0;
  bool maximize = false;
};

// Nothing is checked here: a table or a push that can't be served says why.
struct Optimizer {
  OptimizerKind kind = OptimizerKind::kSum;
  uint32_t flags = 0;
  float initial_state = 0;
  Hyper hyper;  // of the next push; change what a schedule changes

  static Optimizer Sgd(const SgdOptions& options = {});
  static Optimizer Adagrad(const AdagradOptions& options = {});
  static Optimizer Adam(const AdamOptions& options = {});
  static Optimizer AdamW(const AdamWOptions& options = {});
  static Optimizer Rmsprop(const RmspropOptions& options = {});
  static Optimizer SparseAdam(const SparseAdamOptions& options = {});
  static Optimizer RowwiseAdagrad(const RowwiseAdagradOptions& options = {});
  static Optimizer Ftrl(const FtrlOptions& options = {});

  // The same table, trained by this optimizer.
  TableSpec For(TableSpec spec) const;
};

}  // namespace cairn
