// The operations of figures.h: dense, small, sparse.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/random.h"
#include "figures.h"
#include "measure.h"

namespace bench {
namespace {

struct Optimizer {
  cairn::OptimizerKind dense, sparse;
  cairn::Hyper hyper;
};
Optimizer Named(const std::string& name) {
  using cairn::OptimizerKind;
  if (name == "adagrad")
    return {OptimizerKind::kAdagrad, OptimizerKind::kAdagrad, {.lr = 1e-3, .eps = 1e-10, .step = 1}};
  if (name == "adam")
    return {OptimizerKind::kAdam,
            OptimizerKind::kSparseAdam,
            {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .step = 1}};
  return {OptimizerKind::kSgd, OptimizerKind::kSgd, {.lr = 1e-3}};
}

// A worker that computes: arithmetic in registers for so long.
void Compute(std::chrono::microseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  volatile double keep = 0;
  while (std::chrono::steady_clock::now() < end) {
    double x = 1.0001;
    for (int i = 0; i < 200; ++i) x = std::fma(x, 1.0000001, 1e-9);
    keep = x;
  }
  static_cast<void>(keep);
}

}  // namespace

void Figures::DenseOf(const std::string& optimizer, const char* size_name, uint64_t bytes, bool pull_too) {
  const Optimizer chosen = Named(optimizer);
  cairn::TableSpec spec{.name = std::string("dense ") + optimizer + " " + size_name,
                        .optimizer = chosen.dense,
                        .size = bytes / sizeof(float)};
  auto table = client_.CreateDense(spec);
  Check(table.status());
  const std::vector<float> gradient(spec.size, 1e-3f);
  std::vector<float> out(spec.size);
  const cairn::PushPullOptions both{.hyper = chosen.hyper};
  const cairn::PushOptions lent{.hyper = chosen.hyper, .borrow = true};  // it is waited for
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  const std::string ending = std::string("_") + std::to_string(bytes >> 20) + "mb_" + optimizer;
  const std::string text = std::string(" ") + size_name + ", " + optimizer;
  Measure({"dense_push" + ending, "dense push" + text, gigabytes, "GB/s"},
          [&] { Check(table->Push(std::span(gradient), lent).Wait()); });
  if (pull_too) {
    Measure({"dense_pull" + ending, "dense pull" + text, gigabytes, "GB/s"},
            [&] { Check(table->Pull(std::span(out)).Wait()); });
    // Bytes of one way: as much goes the other way in the same time.
    Measure({"dense_push_pull" + ending, "dense push+pull" + text + ", each way", gigabytes, "GB/s"},
            [&] { Check(table->PushPull(std::span(gradient), std::span(out), both).Wait()); });
  }
  Check(client_.Barrier());
  if (client_.rank() == 0) Check(client_.DropTable(spec.name));
}

void Figures::Dense() {
  for (const std::string& optimizer : flags_.optimizers) {
    const bool first = optimizer == flags_.optimizers.front();
    DenseOf(optimizer, "16 MB", 16 << 20, first);
    if (first) DenseOf(optimizer, "4 MB", 4 << 20, true);
  }
}

void Figures::Sync() {
  const std::pair<const char*, uint64_t> sizes[] = {
      {"4 KB", 4 << 10}, {"4 MB", 4 << 20}, {"16 MB", 16 << 20}};
  for (const auto& [name, bytes] : sizes) {
    cairn::TableSpec spec{.name = std::string("sync ") + name,
                          .mode = cairn::Mode::kSync,
                          .optimizer = cairn::OptimizerKind::kSgd,
                          .size = bytes / sizeof(float)};
    auto table = client_.CreateDense(spec);
    Check(table.status());
    const std::vector<float> gradient(spec.size, 1e-3f);
    std::vector<float> out(spec.size);
    // A number of rounds and not a time: everybody takes part in each of them.
    MeasureRounds(
        {"sync_" + std::to_string(bytes >> 10) + "kb", std::string("sync push+pull ") + name, 0, "us"},
        bytes > (1 << 20) ? 60 : 2000,
        [&] { Check(table->PushPull(std::span(gradient), std::span(out)).Wait()); });
    Check(client_.Barrier());
    if (client_.rank() == 0) Check(client_.DropTable(spec.name));
  }
}

void Figures::Small() {
  cairn::TableSpec spec{.name = "small", .optimizer = cairn::OptimizerKind::kSgd, .size = 1024};
  auto table = client_.CreateDense(spec);
  Check(table.status());
  const std::vector<float> gradient(spec.size, 1e-3f);
  const auto push = [&] { Check(table->Push(std::span(gradient), {.borrow = true}).Wait()); };
  Measure({"small_push", "dense push 4 KB, back to back", 0, "us"}, push);
  Measure({"small_push_computing", "dense push 4 KB, 1 ms of computing between", 0, "us",
           [] { Compute(std::chrono::milliseconds(1)); }},
          push);
  Check(client_.Barrier());
  if (client_.rank() == 0) Check(client_.DropTable(spec.name));
}

void Figures::SparseOf(const std::string& optimizer) {
  const Optimizer chosen = Named(optimizer);
  cairn::TableSpec spec{.name = "sparse " + optimizer,
                        .kind = cairn::TableKind::kSparse,
                        .optimizer = chosen.sparse,
                        .dim = flags_.dim};
  auto table = client_.CreateSparse(spec);
  Check(table.status());
  const std::vector<float> rows(flags_.keys * flags_.dim, 1e-3f);
  std::vector<float> out(rows.size());
  const cairn::PushOptions options{.hyper = chosen.hyper};
  const cairn::PushPullOptions both{.hyper = chosen.hyper};
  // Every row exists before anything is measured: each worker makes its share.
  std::vector<cairn::RowKey> keys(flags_.keys);
  const uint64_t stride = flags_.keys * client_.world_size();
  for (uint64_t first = flags_.keys * client_.rank(); first < flags_.rows; first += stride) {
    for (uint64_t i = 0; i < flags_.keys; ++i) keys[i] = cairn::Mix64(first + i);
    Check(table->Push(keys, std::span(rows), options).Wait());
  }
  // Several batches in turn, so that neither rows nor lists of keys stay in the cache.
  constexpr size_t kBatches = 8;
  cairn::Random random(1 + client_.rank());
  std::vector<std::vector<cairn::RowKey>> batches(kBatches, keys);
  for (auto& batch : batches)
    for (cairn::RowKey& key : batch) key = cairn::Mix64(random.Below(flags_.rows));
  size_t turn = 0;
  const double millions = static_cast<double>(flags_.keys) / 1e6;
  const std::string text = " " + std::to_string(flags_.keys / 1000) + " k keys of " +
                           std::to_string(flags_.rows / 1000) + " k, " + optimizer;
  Measure({"sparse_push_" + optimizer, "sparse push" + text, millions, "M keys/s"},
          [&] { Check(table->Push(batches[turn++ % kBatches], std::span(rows), options).Wait()); });
  Measure({"sparse_pull_" + optimizer, "sparse pull" + text, millions, "M keys/s"},
          [&] { Check(table->Pull(batches[turn++ % kBatches], std::span(out)).Wait()); });
  if (optimizer == flags_.optimizers.front())
    Measure({"sparse_push_pull_" + optimizer, "sparse push+pull" + text, millions, "M keys/s"}, [&] {
      const auto& batch = batches[turn++ % kBatches];
      Check(table->PushPull(batch, std::span(rows), std::span(out), both).Wait());
    });
  Check(client_.Barrier());
  if (client_.rank() == 0) Check(client_.DropTable(spec.name));
}

void Figures::Sparse() {
  for (const std::string& optimizer : flags_.optimizers) SparseOf(optimizer);
}

}  // namespace bench
