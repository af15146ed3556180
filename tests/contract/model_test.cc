// Models through the public API over real servers: tensors in pieces, masks, assigns, columns.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <set>
#include <tuple>

#include "model.h"
#include "workers.h"

namespace cairn {
namespace {

using testing::Cluster;
using testing::Create;
using testing::MaskOf;
using testing::Model;
using testing::RunWorkers;
using testing::SpecOf;

TEST(ModelInPieces, TenTensorsAreOneRound) {
  auto cluster = Cluster(2, 2, 2);
  RunWorkers(*cluster, 2, [&](Client& client) {
    Model weights(Model::LeNet(), -1), gradient(Model::LeNet());
    DenseTable table = Create(client, SpecOf(weights, Mode::kSync, OptimizerKind::kSgd));
    EXPECT_EQ(client.live_ranks(), (std::vector<uint32_t>{0, 1}));
    const std::vector<uint64_t> starts = client.live_incarnations();
    EXPECT_EQ(std::set<uint64_t>(starts.begin(), starts.end()).size(), 2u);
    EXPECT_EQ(starts[client.rank()], client.incarnation());
    ASSERT_CAIRN_OK(table.Pull(weights.out()).Wait());
    EXPECT_EQ(weights, Model(Model::LeNet(), 0));
    constexpr int kSteps = 20;
    for (int step = 1; step <= kSteps; ++step) {
      // Means of small integers: exact in every order.
      int next = 0;
      for (auto& tensor : gradient.tensors) {
        for (float& v : tensor) v = static_cast<float>(next++ % 61 * (client.rank() == 0 ? 1 : 3));
      }
      ASSERT_CAIRN_OK(table.PushPull(gradient.in(), weights.out(), {.hyper = {.lr = 0.5}}).Wait());
      next = 0;
      for (const auto& tensor : weights.tensors) {
        for (float v : tensor) ASSERT_EQ(v, static_cast<float>(-step * (next++ % 61)));
      }
    }
    // As one array it is the same table, and a piece without memory is not wanted.
    std::vector<float> whole(weights.size());
    ASSERT_CAIRN_OK(table.Pull(whole).Wait());
    Model part(Model::LeNet(), 7);
    std::vector<std::span<float>> some = part.out();
    some[4] = {static_cast<float*>(nullptr), some[4].size()};
    ASSERT_CAIRN_OK(table.Pull(some).Wait());
    size_t at = 0;
    for (size_t t = 0; t < part.tensors.size(); ++t) {
      for (float v : part.tensors[t]) {
        ASSERT_EQ(v, t == 4 ? 7 : whole[at]) << t;
        ++at;
      }
    }
    // Pieces that are not the whole table are a mistake, and take no round.
    const std::vector<std::span<const float>> ten = gradient.in();
    EXPECT_EQ(table.Push(ConstPieces(ten).first(9)).Wait().code(), Code::kInvalidArgument);
    EXPECT_EQ(table.Push(ConstPieces{}).Wait().code(), Code::kInvalidArgument);
    EXPECT_EQ(table.round().value(), uint64_t{kSteps});
    ASSERT_CAIRN_OK(client.Barrier());
  });
}

TEST(ModelInPieces, ASegmentTakesPartIfAnybodyHasIt) {
  auto cluster = Cluster(2, 2, 2);
  const std::vector<uint64_t> sizes{3000, 5, 4000, 7};
  RunWorkers(*cluster, 2, [&](Client& client) {
    Model weights(sizes), gradient(sizes, 4);
    TableSpec spec = SpecOf(weights, Mode::kSync, OptimizerKind::kSgd);
    spec.init = Init::Constant(8);
    DenseTable table = Create(client, spec);
    // Rank 0 has segments 0 and 1, rank 1 has 1 and 2; nobody has 3. What is left out may be
    // anything.
    const std::vector<std::byte> mask = client.rank() == 0 ? MaskOf({0, 1}) : MaskOf({1, 2});
    for (size_t t = 0; t < 4; ++t) {
      const bool mine = t == 1 || t == client.rank() * 2;
      if (!mine) gradient.tensors[t].assign(sizes[t], std::numeric_limits<float>::quiet_NaN());
    }
    std::vector<std::span<const float>> pieces = gradient.in();
    pieces[3] = {static_cast<const float*>(nullptr), sizes[3]};
    const PushPullOptions options{.hyper = {.lr = 0.5, .weight_decay = 0.25}, .mask = mask};
    ASSERT_CAIRN_OK(table.PushPull(pieces, weights.out(), options).Wait());
    // w -= lr * (mean + decay * w): the mean is over both workers also where one has nothing.
    const float once = 8 - 0.5f * (2 + 2), twice = 8 - 0.5f * (4 + 2);
    const std::vector<float> expected{once, twice, once, 8};
    for (size_t t = 0; t < 4; ++t)
      EXPECT_EQ(weights.tensors[t], std::vector<float>(sizes[t], expected[t])) << t;
    Model steps(sizes, -1);
    ASSERT_CAIRN_OK(table.Pull(steps.out(), {.column = kStepColumn}).Wait());
    for (size_t t = 0; t < 4; ++t)
      EXPECT_EQ(steps.tensors[t], std::vector<float>(sizes[t], t == 3 ? 0 : 1)) << t;
    const PushOptions no_assign{.hyper = options.hyper, .column = 1};
    EXPECT_EQ(table.Push(gradient.in(), no_assign).Wait().code(), Code::kInvalidArgument);
  });
}

TEST(ModelInPieces, AdamStateIsReadAndAssignedByColumn) {
  auto cluster = Cluster(2, 1, 1);
  const std::vector<uint64_t> sizes{2000, 30};
  RunWorkers(*cluster, 1, [&](Client& client) {
    Model gradient(sizes, 4), out(sizes);
    DenseTable table = Create(client, SpecOf(gradient, Mode::kAsync, OptimizerKind::kAdam));
    const std::vector<std::byte> first = MaskOf({0});
    const PushPullOptions options{.hyper = {.lr = 0.125, .beta1 = 0.5, .beta2 = 0.75}, .mask = first};
    ASSERT_CAIRN_OK(table.PushPull(gradient.in(), out.out(), options).Wait());
    // The first step is lr, whatever the gradient.
    EXPECT_EQ(out.tensors[0], std::vector<float>(sizes[0], -0.125f));
    EXPECT_EQ(out.tensors[1], std::vector<float>(sizes[1], 0));
    const std::vector<std::pair<uint8_t, float>> columns{{1, 2.0f}, {2, 4.0f}, {kStepColumn, 1.0f}};
    for (const auto& [column, value] : columns) {
      ASSERT_CAIRN_OK(table.Pull(out.out(), {.column = column}).Wait());
      EXPECT_EQ(out.tensors[0], std::vector<float>(sizes[0], value)) << int{column};
      EXPECT_EQ(out.tensors[1], std::vector<float>(sizes[1], 0)) << int{column};
      Model given(sizes, value * 3);
      ASSERT_CAIRN_OK(table.Push(given.in(), {.op = PushOp::kAssign, .column = column}).Wait());
      ASSERT_CAIRN_OK(table.Pull(out.out(), {.column = column}).Wait());
      EXPECT_EQ(out, given) << int{column};
    }
    ASSERT_CAIRN_OK(table.Pull(out.out()).Wait());
    EXPECT_EQ(out.tensors[0][0], -0.125f);  // the values are as they were
    // There is no third state array without amsgrad.
    EXPECT_EQ(table.Pull(out.out(), {.column = 3}).Wait().code(), Code::kInvalidArgument);
    const PushOptions third{.op = PushOp::kAssign, .column = 3};
    EXPECT_EQ(table.Push(gradient.in(), third).Wait().code(), Code::kInvalidArgument);
    std::vector<int64_t> counts(10);
    DenseTable ints = Create(client, {.name = "n", .element = ElementType::kInt64, .size = 10});
    EXPECT_EQ(ints.Pull(counts, {.column = kStepColumn}).Wait().code(), Code::kInvalidArgument);
    EXPECT_EQ(ints.Push(counts, {.op = PushOp::kAssign}).Wait().code(), Code::kInvalidArgument);
  });
}

TEST(ModelInPieces, OneWorkerGivesTheValuesOfASyncTable) {
  auto cluster = Cluster(2, 2, 2);
  RunWorkers(*cluster, 2, [&](Client& client) {
    Model weights(Model::LeNet()), given(Model::LeNet(), 2.5f);
    DenseTable table = Create(client, SpecOf(weights, Mode::kSync, OptimizerKind::kSgd));
    const DoneOptions none{.weight = 0, .op = PushOp::kAssign};
    if (client.rank() == 1) {
      ASSERT_CAIRN_OK(table.PushPull(given.in(), weights.out(), {.op = PushOp::kAssign}).Wait());
    } else {
      ASSERT_CAIRN_OK(table.DonePull(weights.out(), none).Wait());
    }
    EXPECT_EQ(weights, given);
    // Nobody gives: both are told, and nothing changes.
    EXPECT_EQ(table.Done(none).Wait().code(), Code::kUnavailable);
    // One assigns where the other pushes: both are told.
    PushOptions options;
    if (client.rank() == 0) options.op = PushOp::kAssign;
    EXPECT_EQ(table.Push(given.in(), options).Wait().code(), Code::kHyperMismatch);
    ASSERT_CAIRN_OK(table.Pull(weights.out()).Wait());
    EXPECT_EQ(weights, given);
    // Once only: what is assigned stays, also without a round.
    Model late(Model::LeNet(), 9);
    const PushOptions once{.op = PushOp::kAssignOnce};
    ASSERT_CAIRN_OK(table.Push(late.in(), once).Wait());
    ASSERT_CAIRN_OK(table.Pull(weights.out()).Wait());
    EXPECT_EQ(weights, given);
    EXPECT_EQ(table.PushPull(late.in(), weights.out(), {.op = PushOp::kAssignOnce}).Wait().code(),
              Code::kInvalidArgument);
    const PullOptions waiting{.when_assigned = true};
    EXPECT_EQ(table.Pull(weights.out(), waiting).Wait().code(), Code::kInvalidArgument);
    ASSERT_CAIRN_OK(client.Barrier());
  });
}

TEST(ModelInPieces, AWorkerGivesStateToASyncTableBeforeItsFirstRound) {
  auto cluster = Cluster(2, 2, 1);
  RunWorkers(*cluster, 1, [&](Client& client) {
    Model weights(Model::LeNet()), state(Model::LeNet(), 3), given(Model::LeNet(), 2.5f);
    TableSpec spec = SpecOf(weights, Mode::kSync, OptimizerKind::kSgd);
    spec.optimizer_flags = kWithMomentum;
    DenseTable table = Create(client, spec);
    const auto give = [&](uint8_t column) {
      return table.Push(state.in(), {.op = PushOp::kAssignOnce, .column = column}).Wait();
    };
    ASSERT_CAIRN_OK(give(1));
    ASSERT_CAIRN_OK(give(kStepColumn));
    ASSERT_CAIRN_OK(table.PushPull(given.in(), weights.out(), {.op = PushOp::kAssign}).Wait());
    EXPECT_EQ(weights, given);
    for (uint8_t column : {uint8_t{1}, kStepColumn}) {
      ASSERT_CAIRN_OK(table.Pull(weights.out(), {.column = column}).Wait());
      EXPECT_EQ(weights, state) << int{column};
    }
  });
}

TEST(ModelInPieces, TheFirstToAssignWinsAndOthersWaitForIt) {
  auto cluster = Cluster(2, 2, 2);
  std::atomic<bool> asked{false};
  RunWorkers(*cluster, 2, [&](Client& client) {
    Model weights(Model::LeNet(), -1), given(Model::LeNet(), 1.5f), late(Model::LeNet(), 9);
    DenseTable table = Create(client, SpecOf(weights, Mode::kAsync, OptimizerKind::kSgd));
    if (client.rank() == 1) {
      Pending pull = table.Pull(weights.out(), {.when_assigned = true});
      EXPECT_FALSE(pull.WaitFor(20));  // nobody assigns before this
      EXPECT_FALSE(pull.ready());
      asked = true;
      asked.notify_all();
      ASSERT_CAIRN_OK(pull.Wait());
      EXPECT_TRUE(pull.WaitFor(0));
      EXPECT_EQ(weights, given);
      ASSERT_CAIRN_OK(table.Push(late.in(), {.op = PushOp::kAssignOnce}).Wait());
      ASSERT_CAIRN_OK(table.Pull(weights.out(), {.when_assigned = true}).Wait());
      EXPECT_EQ(weights, given);
      ASSERT_CAIRN_OK(table.Push(late.in(), {.op = PushOp::kAssign}).Wait());
      ASSERT_CAIRN_OK(table.Pull(weights.out()).Wait());
      EXPECT_EQ(weights, late);
    } else {
      asked.wait(false);
      ASSERT_CAIRN_OK(table.Push(given.in(), {.op = PushOp::kAssignOnce}).Wait());
    }
    ASSERT_CAIRN_OK(client.Barrier());
  });
}

TEST(ModelInPieces, APushThatNobodyWaitsForHasItsOwnCopy) {
  auto cluster = Cluster(2, 2, 1);
  RunWorkers(*cluster, 1, [&](Client& client) {
    Model ones(Model::LeNet(), 1), sum(Model::LeNet());
    DenseTable table = Create(client, SpecOf(sum, Mode::kAsync, OptimizerKind::kSum));
    for (int i = 0; i < 50; ++i) {
      std::ignore = table.Push(ones.in());
      ones.Fill(1000);  // the caller's again at once
      ones.Fill(1);
    }
    ASSERT_CAIRN_OK(table.PushPull(ones.in(), sum.out()).Wait());
    EXPECT_EQ(sum, Model(Model::LeNet(), 51));
  });
}

TEST(ModelInPieces, SegmentsThatCanNotBeAreRefused) {
  auto cluster = Cluster(1, 1, 1);
  RunWorkers(*cluster, 1, [&](Client& client) {
    const std::vector<std::vector<uint64_t>> wrong{{5, 4, 10}, {5, 5, 10}, {5, 9}, {5, 11}, {0, 10}};
    for (const std::vector<uint64_t>& segments : wrong) {
      TableSpec spec{.name = "w", .size = 10};
      spec.segments = segments;
      EXPECT_EQ(client.CreateDense(spec).status().code(), Code::kInvalidArgument);
    }
    TableSpec spec{.name = "e", .dim = 10};
    spec.segments = {10};
    EXPECT_EQ(client.CreateSparse(spec).status().code(), Code::kInvalidArgument);
  });
}

}  // namespace
}  // namespace cairn
