// The mapping from torch's names to what travels with a push.
#include "cairn/optimizer.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(Optimizer, DefaultsAreTorchs) {
  EXPECT_EQ(Optimizer::Sgd().hyper, (Hyper{.lr = 1e-3}));
  EXPECT_EQ(Optimizer::Sgd().flags, 0u);
  EXPECT_EQ(Optimizer::Adagrad().hyper, (Hyper{.lr = 1e-2, .eps = 1e-10}));
  EXPECT_EQ(Optimizer::Adam().hyper, (Hyper{.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}));
  EXPECT_EQ(Optimizer::AdamW().hyper,
            (Hyper{.lr = 1e-3, .weight_decay = 1e-2, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}));
  EXPECT_EQ(Optimizer::Rmsprop().hyper, (Hyper{.lr = 1e-2, .beta2 = 0.99, .eps = 1e-8}));
  EXPECT_EQ(Optimizer::SparseAdam().hyper, (Hyper{.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}));
}

TEST(Optimizer, EveryOptionHasItsPlace) {
  const Optimizer sgd = Optimizer::Sgd({.lr = 1,
                                        .momentum = 0.5,
                                        .dampening = 0.25,
                                        .weight_decay = 0.125,
                                        .nesterov = true,
                                        .maximize = true});
  EXPECT_EQ(sgd.hyper, (Hyper{.lr = 1, .weight_decay = 0.125, .beta1 = 0.5, .dampening = 0.25}));
  EXPECT_EQ(sgd.flags, kWithMomentum | kNesterov | kMaximize);
  const Optimizer adagrad = Optimizer::Adagrad({.lr = 1,
                                                .lr_decay = 0.5,
                                                .weight_decay = 0.25,
                                                .initial_accumulator_value = 3,
                                                .eps = 2,
                                                .maximize = true});
  EXPECT_EQ(adagrad.hyper, (Hyper{.lr = 1, .weight_decay = 0.25, .eps = 2, .dampening = 0.5}));
  EXPECT_EQ(adagrad.initial_state, 3);
  EXPECT_EQ(adagrad.flags, uint32_t{kMaximize});
  const Optimizer adam = Optimizer::Adam(
      {.lr = 1, .beta1 = 2, .beta2 = 3, .eps = 4, .weight_decay = 5, .amsgrad = true, .maximize = true});
  EXPECT_EQ(adam.hyper, (Hyper{.lr = 1, .weight_decay = 5, .beta1 = 2, .beta2 = 3, .eps = 4}));
  EXPECT_EQ(adam.flags, kAmsgrad | kMaximize);
  const Optimizer rmsprop = Optimizer::Rmsprop(
      {.lr = 1, .alpha = 2, .eps = 3, .weight_decay = 4, .momentum = 5, .centered = true, .maximize = true});
  EXPECT_EQ(rmsprop.hyper, (Hyper{.lr = 1, .weight_decay = 4, .beta1 = 5, .beta2 = 2, .eps = 3}));
  EXPECT_EQ(rmsprop.flags, kWithMomentum | kCentered | kMaximize);
  const Optimizer ftrl = Optimizer::Ftrl(
      {.lr = 1, .beta = 2, .l1 = 3, .l2 = 4, .initial_accumulator_value = 5, .maximize = true});
  EXPECT_EQ(ftrl.hyper, (Hyper{.lr = 1, .weight_decay = 4, .beta1 = 3, .beta2 = 2}));
  EXPECT_EQ(ftrl.initial_state, 5);
  const Optimizer rows =
      Optimizer::RowwiseAdagrad({.lr = 1, .eps = 2, .initial_accumulator_value = 3, .maximize = true});
  EXPECT_EQ(rows.hyper, (Hyper{.lr = 1, .eps = 2}));
  EXPECT_EQ(rows.initial_state, 3);
}

TEST(Optimizer, ATableKeepsWhatIsNotTheOptimizers) {
  const TableSpec spec = Optimizer::Adam({.amsgrad = true})
                             .For({.name = "w", .size = 7, .optimizer_flags = kReduceSum | kNesterov});
  EXPECT_EQ(spec.name, "w");
  EXPECT_EQ(spec.size, 7u);
  EXPECT_EQ(spec.optimizer, OptimizerKind::kAdam);
  EXPECT_EQ(spec.optimizer_flags, uint32_t{kReduceSum | kAmsgrad});
}

}  // namespace
}  // namespace cairn
