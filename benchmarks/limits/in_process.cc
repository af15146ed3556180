// in_process [--rows N] [--keys N] [--seconds S] [--only sparse|dense]: the tables of a server
// without a server, on one thread, as JSON: the limit of what a cluster can do with them.
//
// Sparse: 256 partitions, rows of 16 floats, frames of random keys that are already cut by partition.
// Dense: 16 MB in 256 partitions. Apply and Read alone; nothing is checked, nothing is sent.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "limits/repeat.h"
#include "table/memory/arena.h"
#include "table/slot_table.h"

namespace {

using cairn::OptimizerKind;
using cairn::RowKey;
using cairn::table::SlotTable;

constexpr uint32_t kSlots = 256, kDim = 16;
constexpr uint64_t kDenseBytes = 16 << 20;
constexpr size_t kFrames = 8;

struct Flags {
  uint64_t rows = 10'000'000;
  size_t keys = 100'000;
  double seconds = 1.0;  // per figure
  std::string only;
};

struct Optimizer {
  const char* name;
  OptimizerKind dense, sparse;
};
constexpr Optimizer kOptimizers[] = {{"sgd", OptimizerKind::kSgd, OptimizerKind::kSgd},
                                     {"adagrad", OptimizerKind::kAdagrad, OptimizerKind::kAdagrad},
                                     {"adam", OptimizerKind::kAdam, OptimizerKind::kSparseAdam}};
const cairn::Hyper kHyper{.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .step = 2};
// SGD without momentum: its beta1 would be one.
cairn::Hyper HyperOf(OptimizerKind kind) {
  return kind == OptimizerKind::kSgd ? cairn::Hyper{.lr = 0.01} : kHyper;
}

// Keys of a push, by slot.
struct Frame {
  std::vector<RowKey> keys;
  std::vector<size_t> begin;  // kSlots + 1
  std::span<const RowKey> of(uint32_t s) const {
    return std::span(keys).subspan(begin[s], begin[s + 1] - begin[s]);
  }
};
template <class NextKey>
Frame MakeFrame(size_t count, NextKey next) {
  std::vector<std::vector<RowKey>> by_slot(kSlots);
  for (size_t i = 0; i < count; ++i) {
    const RowKey key = next();
    by_slot[cairn::wire::SlotOfKey(key, kSlots).value].push_back(key);
  }
  Frame frame;
  frame.begin.push_back(0);
  for (const auto& keys : by_slot) {
    frame.keys.insert(frame.keys.end(), keys.begin(), keys.end());
    frame.begin.push_back(frame.keys.size());
  }
  return frame;
}

// The arena must outlive the slots.
struct Table {
  cairn::table::Arena arena;
  std::vector<std::unique_ptr<SlotTable>> slots;
  explicit Table(const cairn::TableSpec& spec) {
    const cairn::wire::TableInfo info{cairn::TableId{1}, spec, cairn::ViewNumber{1}};
    for (uint32_t s = 0; s < kSlots; ++s)
      slots.push_back(SlotTable::Make(info, cairn::SlotId{s}, kSlots, arena));
  }
};

// Median seconds of one call, for about so long.
template <class Work>
double Median(double seconds, Work work) {
  const double start = bench::SecondsNow();
  work();
  const double once = bench::SecondsNow() - start;
  return bench::MedianSeconds(std::max(5, static_cast<int>(seconds / once)), work);
}

void PrintFigure(const std::string& name, double value) {
  static bool first = true;
  std::printf("%s\"%s\": %.6g", first ? "{" : ", ", name.c_str(), value);
  first = false;
  std::fflush(stdout);
}

void Sparse(const Flags& flags, const Optimizer& optimizer) {
  Table table(
      {.name = "sparse", .kind = cairn::TableKind::kSparse, .optimizer = optimizer.sparse, .dim = kDim});
  const std::vector<float> values(flags.keys * kDim, 1e-6f);
  std::vector<float> out(values.size());
  const cairn::Hyper hyper = HyperOf(optimizer.sparse);
  const auto apply = [&](const Frame& frame) {
    for (uint32_t s = 0; s < kSlots; ++s) {
      const auto part = std::span(values).subspan(frame.begin[s] * kDim, frame.of(s).size() * kDim);
      table.slots[s]->Apply(frame.of(s), std::as_bytes(part), {}, hyper);
    }
  };
  // Every row exists before anything is measured.
  uint64_t filled = 0;
  while (filled < flags.rows) apply(MakeFrame(flags.keys, [&] { return cairn::Mix64(filled++); }));
  cairn::Random random(1);
  std::vector<Frame> frames;
  for (size_t i = 0; i < kFrames; ++i)
    frames.push_back(MakeFrame(flags.keys, [&] { return cairn::Mix64(random.Below(flags.rows)); }));
  size_t turn = 0;
  const double push = Median(flags.seconds, [&] { apply(frames[turn++ % kFrames]); });
  const double pull = Median(flags.seconds, [&] {
    const Frame& frame = frames[turn++ % kFrames];
    for (uint32_t s = 0; s < kSlots; ++s)
      table.slots[s]->Read(frame.of(s), 0, reinterpret_cast<std::byte*>(out.data() + frame.begin[s] * kDim));
  });
  const auto keys = static_cast<double>(flags.keys);
  PrintFigure(std::string("sparse_push_") + optimizer.name + "_keys_per_s", keys / push);
  PrintFigure(std::string("sparse_pull_") + optimizer.name + "_keys_per_s", keys / pull);
}

void Dense(const Flags& flags, const Optimizer& optimizer) {
  constexpr uint64_t kSize = kDenseBytes / sizeof(float);
  Table table({.name = "dense", .optimizer = optimizer.dense, .size = kSize});
  const std::vector<float> gradient(kSize, 1e-6f);
  const cairn::Hyper hyper = HyperOf(optimizer.dense);
  const double push = Median(flags.seconds, [&] {
    size_t at = 0;
    for (const auto& slot : table.slots) {
      const auto part = std::span(gradient).subspan(at, slot->rows());
      if (!part.empty()) slot->Apply({}, std::as_bytes(part), {}, hyper);
      at += part.size();
    }
  });
  PrintFigure(std::string("dense_push_") + optimizer.name + "_gb_per_s", double{kDenseBytes} / push * 1e-9);
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--rows") flags.rows = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--keys") flags.keys = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--seconds") flags.seconds = std::strtod(argv[i + 1], nullptr);
    if (name == "--only") flags.only = argv[i + 1];
  }
  for (const Optimizer& optimizer : kOptimizers) {
    if (flags.only != "sparse") Dense(flags, optimizer);
    if (flags.only != "dense") Sparse(flags, optimizer);
  }
  std::puts("}");
  return 0;
}
