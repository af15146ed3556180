// Tables of rows through the public API over real servers: optimizers with state, assigns, columns,
// keys, initial rows and rounds in two phases.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "workers.h"

namespace cairn {
namespace {

using testing::Cluster;
using testing::RunWorkers;

constexpr uint32_t kDim = 3;

// One server with one thread, and three with two.
struct Shape {
  uint32_t servers, threads;
};
const Shape kShapes[] = {{1, 1}, {3, 2}};

TableSpec RowSpec(Mode mode, OptimizerKind optimizer) {
  TableSpec spec{.name = "rows", .kind = TableKind::kSparse, .mode = mode, .dim = kDim};
  spec.optimizer = optimizer;
  spec.init = Init::Normal(0, 1, 7);
  spec.init.stream = 5;
  return spec;
}
SparseTable CreateRows(Client& client, const TableSpec& spec) {
  auto table = client.CreateSparse(spec);
  EXPECT_TRUE(table.ok()) << table.status().ToString();
  return std::move(table).value();
}
std::vector<RowKey> KeysUpTo(size_t count, RowKey first = 0) {
  std::vector<RowKey> keys(count);
  std::iota(keys.begin(), keys.end(), first);
  return keys;
}
std::vector<float> Initial(const TableSpec& spec, const std::vector<RowKey>& keys) {
  std::vector<float> rows(keys.size() * kDim);
  InitialRows(spec.init, keys, kDim, rows);
  return rows;
}
std::vector<float> Pulled(SparseTable& table, const std::vector<RowKey>& keys, uint8_t column = 0) {
  std::vector<float> rows(keys.size() * kDim, -99);
  const Status status = table.Pull(keys, rows, {.column = column}).Wait();
  EXPECT_TRUE(status.ok()) << status.ToString();
  return rows;
}
std::set<RowKey> KeysOf(SparseTable& table) {
  auto keys = table.Keys();
  EXPECT_TRUE(keys.ok()) << keys.status().ToString();
  const std::set<RowKey> set(keys->begin(), keys->end());
  EXPECT_EQ(set.size(), keys->size()) << "a key came twice";
  return set;
}

TEST(Rows, BeforeTheFirstPushTheyAreWhatInitialRowsSays) {
  for (const Shape& shape : kShapes) {
    auto cluster = Cluster(shape.servers, shape.threads, 1);
    RunWorkers(*cluster, 1, [&](Client& client) {
      const TableSpec spec = RowSpec(Mode::kAsync, OptimizerKind::kSgd);
      SparseTable table = CreateRows(client, spec);
      const std::vector<RowKey> keys{4, 0, ~RowKey{0}, 4};
      EXPECT_EQ(Pulled(table, keys), Initial(spec, keys));
      EXPECT_TRUE(KeysOf(table).empty());  // nothing was made by reading
      // Another table of the same stream has the same rows, one with its own number others.
      TableSpec same = spec, other = spec;
      same.name = "same";
      other.name = "other";
      other.init.stream = 0;
      SparseTable twin = CreateRows(client, same), stranger = CreateRows(client, other);
      EXPECT_EQ(Pulled(twin, keys), Initial(spec, keys));
      EXPECT_NE(Pulled(stranger, keys), Initial(spec, keys));
    });
  }
}

TEST(Rows, AssignsInBothModes) {
  for (const Shape& shape : kShapes) {
    for (Mode mode : {Mode::kAsync, Mode::kSync}) {
      auto cluster = Cluster(shape.servers, shape.threads, 1);
      RunWorkers(*cluster, 1, [&](Client& client) {
        const TableSpec spec = RowSpec(mode, OptimizerKind::kAdagrad);
        SparseTable table = CreateRows(client, spec);
        const std::vector<RowKey> keys = KeysUpTo(500);
        std::vector<float> rows(keys.size() * kDim);
        for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
        ASSERT_CAIRN_OK(table.Push(keys, rows, {.op = PushOp::kAssign}).Wait());
        EXPECT_EQ(Pulled(table, keys), rows);
        EXPECT_EQ(KeysOf(table), std::set<RowKey>(keys.begin(), keys.end()));
        if (mode == Mode::kSync) {
          EXPECT_EQ(table.round().value(), 0u);  // no round
        }

        // Once: only rows that are not there; of a key that stands twice, the last row.
        const std::vector<RowKey> more{499, 500, 500};
        const std::vector<float> given{-1, -1, -1, 1, 2, 3, 4, 5, 6};
        ASSERT_CAIRN_OK(table.Push(more, given, {.op = PushOp::kAssignOnce}).Wait());
        EXPECT_EQ(Pulled(table, more), (std::vector<float>{1497, 1498, 1499, 4, 5, 6, 4, 5, 6}));

        // A row that exists keeps its state.
        const std::vector<RowKey> one{3};
        const std::vector<float> gradient{2, 2, 2}, zeros{0, 0, 0};
        ASSERT_CAIRN_OK(table.Push(one, gradient, {.hyper = {.lr = 1, .eps = 1e-10}}).Wait());
        ASSERT_CAIRN_OK(table.Push(one, zeros, {.op = PushOp::kAssign}).Wait());
        EXPECT_EQ(Pulled(table, one), zeros);
        EXPECT_EQ(Pulled(table, one, 1), (std::vector<float>{4, 4, 4}));
      });
    }
  }
}

TEST(Rows, KeysAreThoseOfAllThreadsAlsoWhenThereAreMany) {
  for (const Shape& shape : kShapes) {
    auto cluster = Cluster(shape.servers, shape.threads, 1);
    RunWorkers(*cluster, 1, [&](Client& client) {
      SparseTable table = CreateRows(client, RowSpec(Mode::kAsync, OptimizerKind::kSgd));
      const std::vector<RowKey> keys = KeysUpTo(20'000, ~RowKey{0} - 19'999);
      const std::vector<float> rows(keys.size() * kDim, 1);
      ASSERT_CAIRN_OK(table.Push(keys, rows).Wait());
      EXPECT_EQ(KeysOf(table), std::set<RowKey>(keys.begin(), keys.end()));
      EXPECT_EQ(table.Keys({.timeout_ms = 20'000})->size(), keys.size());
    });
  }
}

// In sync, the keys after this worker's last round.
TEST(Rows, KeysOfASyncTableWaitForItsRound) {
  auto cluster = Cluster(3, 2, 2);
  RunWorkers(*cluster, 2, [&](Client& client) {
    SparseTable table = CreateRows(client, RowSpec(Mode::kSync, OptimizerKind::kSgd));
    for (RowKey step = 1; step <= 5; ++step) {
      const std::vector<RowKey> keys = KeysUpTo(50, 1000 * step + 100 * client.rank());
      const std::vector<float> rows(keys.size() * kDim, 1);
      Pending round = table.Push(keys, rows);
      EXPECT_EQ(KeysOf(table).size(), 100 * step);
      ASSERT_CAIRN_OK(round.Wait());
    }
  });
}

// Numbers that are exact in floats: SGD and row-wise Adagrad by hand.
TEST(Rows, TwoPhasesOverAllWorkersRows) {
  for (const Shape& shape : kShapes) {
    auto cluster = Cluster(shape.servers, shape.threads, 2);
    RunWorkers(*cluster, 2, [&](Client& client) {
      TableSpec spec = RowSpec(Mode::kSync, OptimizerKind::kRowwiseAdagrad);
      spec.init = {};
      SparseTable table = CreateRows(client, spec);
      // Keys 0 to 99 of rank 0, 50 to 149 of rank 1: weights 1 and 3, gradients 4 and 4.
      const std::vector<RowKey> mine = KeysUpTo(100, client.rank() * 50), all = KeysUpTo(150);
      std::vector<float> rows(mine.size() * kDim, 4);
      const double weight = client.rank() == 0 ? 1 : 3;
      RoundInfo info;
      const ContributeOptions first{.hyper = {.lr = 1, .step = 1}, .weight = weight, .info = &info};
      ASSERT_CAIRN_OK(table.Contribute(mine, rows, first).Wait());
      // Means: 1 in keys below 50, 4 in the middle, 3 above.
      EXPECT_EQ(info.sum_squares, 50.0 * kDim * (1 + 16 + 9));
      EXPECT_TRUE(info.finite);
      EXPECT_EQ(table.Push(mine, rows).Wait().code(), Code::kInvalidArgument);  // waits for Decide
      ASSERT_CAIRN_OK(table.Decide({.hyper = {.lr = 1, .step = 1}, .scale = 0.5}).Wait());
      std::vector<float> expected;  // lr · g / √(g²), and the accumulator of the scaled mean
      std::vector<float> sums;
      for (RowKey key : all) {
        const float mean = 0.5f * (key < 50 ? 1 : key < 100 ? 4 : 3);
        expected.insert(expected.end(), kDim, -1.0f);
        sums.insert(sums.end(), kDim, mean * mean);
      }
      EXPECT_EQ(Pulled(table, all), expected);
      EXPECT_EQ(Pulled(table, all, 1), sums);
      EXPECT_EQ(Pulled(table, all, kStepColumn), std::vector<float>(all.size() * kDim, 1));

      // One is not finite: all are told, and skip; nothing changes, the step neither.
      const bool bad = client.rank() == 1;
      const ContributeOptions second{.hyper = {.lr = 1, .step = 2}, .not_finite = bad, .info = &info};
      Pending round = bad ? table.Contribute({}, {}, second) : table.Contribute(mine, rows, second);
      ASSERT_CAIRN_OK(round.Wait());
      EXPECT_FALSE(info.finite);
      ASSERT_CAIRN_OK(table.Decide({.hyper = {.lr = 1, .step = 2}, .skip = true}).Wait());
      EXPECT_EQ(Pulled(table, all), expected);
      EXPECT_EQ(Pulled(table, all, kStepColumn), std::vector<float>(all.size() * kDim, 1));
      EXPECT_EQ(table.round().value(), 2u);
    });
  }
}

TEST(Rows, WhoHasJoinedGoesAlongInTwoPhases) {
  auto cluster = Cluster(3, 2, 2);
  RunWorkers(*cluster, 2, [&](Client& client) {
    TableSpec spec = RowSpec(Mode::kSync, OptimizerKind::kSgd);
    spec.init = {};
    SparseTable table = CreateRows(client, spec);
    const std::vector<RowKey> keys = KeysUpTo(40);
    const std::vector<float> rows(keys.size() * kDim, 1);
    const int batches = client.rank() == 0 ? 2 : 4;
    RoundInfo info;
    int steps = 0;
    for (; !info.all_joined; ++steps) {
      ASSERT_LT(steps, 20);
      const ContributeOptions options{.hyper = {.lr = 1}, .joined = steps >= batches, .info = &info};
      ASSERT_CAIRN_OK(table.Contribute(keys, rows, options).Wait());
      ASSERT_CAIRN_OK(table.Decide({.hyper = {.lr = 1}, .joined = options.joined}).Wait());
    }
    EXPECT_EQ(steps, 5);
    EXPECT_EQ(Pulled(table, keys), std::vector<float>(keys.size() * kDim, -4));
  });
}

// torch.optim.SparseAdam by hand, in doubles.
TEST(Rows, SparseAdamWithStepsOfTheTable) {
  for (Mode mode : {Mode::kAsync, Mode::kSync}) {
    auto cluster = Cluster(3, 2, 1);
    RunWorkers(*cluster, 1, [&](Client& client) {
      const TableSpec spec = RowSpec(mode, OptimizerKind::kSparseAdam);
      SparseTable table = CreateRows(client, spec);
      const std::vector<RowKey> keys = KeysUpTo(64);
      const std::vector<float> start = Initial(spec, keys);
      std::vector<double> w(start.begin(), start.end()), m(w.size()), v(w.size());
      const Hyper hyper{.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
      for (uint64_t step = 1; step <= 6; ++step) {
        // Of the rows only some are touched in a step.
        std::vector<RowKey> touched;
        for (RowKey key : keys) {
          if (key % 3 != step % 3) touched.push_back(key);
        }
        std::vector<float> gradient;
        const double correction = hyper.lr * std::sqrt(1 - std::pow(0.99, step)) / (1 - std::pow(0.9, step));
        for (RowKey key : touched) {
          for (uint32_t d = 0; d < kDim; ++d) {
            const size_t i = key * kDim + d;
            const double g = static_cast<double>(key + 1) / 32 - d;
            gradient.push_back(static_cast<float>(g));
            m[i] += (g - m[i]) * (1 - 0.9);
            v[i] += (g * g - v[i]) * (1 - 0.99);
            w[i] -= correction * m[i] / (std::sqrt(v[i]) + 1e-8);
          }
        }
        PushOptions options{.hyper = hyper};
        const Status uncounted = table.Push(touched, gradient, options).Wait();  // step 0
        EXPECT_EQ(uncounted.code(), Code::kInvalidArgument);
        options.hyper.step = step;
        ASSERT_CAIRN_OK(table.Push(touched, gradient, options).Wait());
      }
      const std::vector<float> got = Pulled(table, keys), averages = Pulled(table, keys, 1),
                               squares = Pulled(table, keys, 2);
      for (size_t i = 0; i < w.size(); ++i) {
        EXPECT_NEAR(got[i], w[i], 1e-5);
        EXPECT_NEAR(averages[i], m[i], 1e-5);
        EXPECT_NEAR(squares[i], v[i], 1e-5);
      }
    });
  }
}

}  // namespace
}  // namespace cairn
