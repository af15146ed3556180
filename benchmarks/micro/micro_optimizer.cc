// micro_optimizer [--targets] [--json]: the optimizers' loops in process, one thread.
//
// For each optimizer, GB/s of gradient on arrays in the cache (64 KiB, a piece of a push) and in
// memory (64 MiB), its part of SGD's rate, and, in memory, its part of the limit: the same number of
// arrays, read and written with one addition an element. Then M rows/s of rows of 16 in the cache, eight at
// a time, as a table gives them (micro_table has rows at random places of a large table).
// --targets: on every instruction set that the machine has, and not on the best alone.
//
// Medians over rounds in which everything is measured once; seconds of this thread's CPU time.
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "limits/limits.h"
#include "optimizer/kernels.h"
#include "optimizer/update.h"

namespace cairn::optimizer {
namespace {

constexpr int kRounds = 7;
constexpr size_t kPiece = (64 << 10) / sizeof(float), kLarge = (64 << 20) / sizeof(float);
constexpr size_t kDim = 16, kRows = 2048, kGroup = 8;

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Work {
  const char* name;
  OptimizerKind kind;
  uint32_t flags = 0;
  double weight_decay = 0;
};
using enum OptimizerKind;
const Work kWork[] = {
    {"sgd", kSgd},
    {"sgd, weight decay", kSgd, 0, 1e-3},
    {"momentum", kSgd, kWithMomentum},
    {"nesterov", kSgd, kWithMomentum | kNesterov},
    {"adagrad", kAdagrad},
    {"adam", kAdam},
    {"adam, amsgrad", kAdam, kAmsgrad},
    {"adamw", kAdamW, 0, 1e-3},
    {"rmsprop", kRmsprop},
    {"rmsprop, all", kRmsprop, kWithMomentum | kCentered},
    {"sparse_adam", kSparseAdam},
    {"rowwise_adagrad", kRowwiseAdagrad},
    {"ftrl", kFtrl},
};
StepNumbers NumbersOf(const Work& work) {
  const double beta1 = work.kind == kFtrl ? 1e-3 : 0.9;  // kFtrl: its l1
  const Hyper hyper{
      .lr = 1e-4, .weight_decay = work.weight_decay, .beta1 = beta1, .beta2 = 0.99, .eps = 1e-8};
  return StepNumbers(work.kind, work.flags, hyper, 2);
}

// w, g and state, each in huge pages where there are any, at starts that differ by odd numbers of
// cache lines, as tables have them.
class Arrays {
 public:
  Arrays() {
    const size_t each = kLarge + 16 * 16;
    bytes_ = kCount * each * sizeof(float);
    void* p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    madvise(p, bytes_, MADV_HUGEPAGE);
    pages_ = static_cast<float*>(p);
    constexpr size_t kLines[kCount] = {0, 5, 7, 11, 13};
    for (size_t i = 0; i < kCount; ++i) arrays_[i] = pages_ + i * each + 16 * kLines[i];
  }
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;
  ~Arrays() { munmap(pages_, bytes_); }

  void Fill(size_t n) {
    for (size_t i = 0; i < n; ++i) {
      w()[i] = 1.0f;
      g()[i] = 0.5f - 1e-3f * static_cast<float>(i % 1000);
    }
    for (size_t c = 0; c < kMaxStateColumns; ++c) std::fill_n(state()[c], n, 0.25f);
  }
  float* w() const { return arrays_[0]; }
  float* g() const { return arrays_[1]; }
  float* const* state() const { return arrays_ + 2; }

 private:
  static constexpr size_t kCount = 2 + kMaxStateColumns;
  size_t bytes_;
  float* pages_;
  float* arrays_[kCount];
};

// 16 floats at any float's address, as the compiler makes them.
typedef float Lanes __attribute__((vector_size(64), aligned(4), may_alias));
Lanes& At(float* p) { return *reinterpret_cast<Lanes*>(p); }

// The limit of an optimizer with so many columns of state.
void Traffic(const Arrays& a, size_t columns, size_t n) {
  for (size_t i = 0; i < n; i += 16) {
    At(a.w() + i) += At(a.g() + i);
    for (size_t c = 0; c < columns; ++c) At(a.state()[c] + i) += At(a.g() + i);
  }
}

// GB/s of n gradients at a time.
template <class Step>
double GbPerSecond(size_t n, Step step) {
  const int times = n == kLarge ? 3 : 200;
  step();
  const double start = CpuSeconds();
  for (int i = 0; i < times; ++i) step();
  return times * static_cast<double>(n * sizeof(float)) / (CpuSeconds() - start) * 1e-9;
}

double MRowsPerSecond(const Kernels& kernels, const Work& work) {
  const size_t columns = StateColumns(work.kind, work.flags);
  const size_t floats = kDim + columns * (work.kind == kRowwiseAdagrad ? 1 : kDim);
  std::vector<float> all(kRows * floats, 0.25f), g(kRows * kDim, 0.3f);
  std::vector<float*> rows;
  std::vector<const float*> gradients;
  for (size_t r = 0; r < kRows; ++r) {
    rows.push_back(all.data() + (r * 1021 % kRows) * floats);
    gradients.push_back(g.data() + r * kDim);
  }
  RowStep step(NumbersOf(work), {}, kDim);
  step.work = kernels.update_rows;
  const auto pass = [&] {
    for (size_t r = 0; r < kRows; r += kGroup) step(rows.data() + r, gradients.data() + r, kGroup);
  };
  pass();
  constexpr int kTimes = 40;
  const double start = CpuSeconds();
  for (int i = 0; i < kTimes; ++i) pass();
  return kTimes * static_cast<double>(kRows) / (CpuSeconds() - start) * 1e-6;
}

struct Figures {
  std::vector<double> cached, large, limit, rows;
};
double Median(std::vector<double> v) {
  std::ranges::nth_element(v, v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2));
  return v[v.size() / 2];
}

void MeasureOnce(const Kernels& kernels, const Work& work, Arrays& a, Figures& f) {
  const StepNumbers numbers = NumbersOf(work);
  const bool whole_rows = work.kind == kRowwiseAdagrad;  // an array is no row
  for (size_t n : {kPiece, kLarge}) {
    if (whole_rows) break;
    a.Fill(n);
    const size_t columns = StateColumns(work.kind, work.flags);
    if (n == kLarge) f.limit.push_back(GbPerSecond(n, [&] { Traffic(a, columns, n); }));
    a.Fill(n);
    (n == kPiece ? f.cached : f.large).push_back(GbPerSecond(n, [&] {
      kernels.update(numbers, {}, a.w(), a.g(), a.state(), n);
    }));
  }
  f.rows.push_back(MRowsPerSecond(kernels, work));
}

void Measure(const Kernels& kernels, Arrays& a, bool json) {
  std::vector<Figures> all(std::size(kWork));
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < all.size(); ++i) MeasureOnce(kernels, kWork[i], a, all[i]);
  }
  const double sgd_cached = Median(all[0].cached), sgd_large = Median(all[0].large);
  const double sgd_rows = Median(all[0].rows);
  if (!json) {
    std::printf(
        "\n%-18s| 64 KiB: GB/s  of sgd | 64 MiB: GB/s  of sgd      limit  of limit | M rows/s  of sgd\n",
        kernels.name);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const Figures& f = all[i];
    const double rows = Median(f.rows);
    const bool arrays = !f.cached.empty();
    const double cached = arrays ? Median(f.cached) : 0, large = arrays ? Median(f.large) : 0;
    const double limit = arrays ? Median(f.limit) : 0;
    if (json) {
      std::printf(
          "{\"target\": \"%s\", \"optimizer\": \"%s\", \"cached_gb_per_s\": %.3f, "
          "\"large_gb_per_s\": %.3f, \"large_limit_gb_per_s\": %.3f, \"m_rows_per_s\": %.3f}\n",
          kernels.name, kWork[i].name, cached, large, limit, rows);
    } else if (arrays) {
      std::printf("%-18s| %12.1f %7.2f | %12.1f %7.2f %10.1f %9.2f | %8.0f %7.2f\n", kWork[i].name, cached,
                  cached / sgd_cached, large, large / sgd_large, limit, large / limit, rows, rows / sgd_rows);
    } else {
      std::printf("%-18s| %20s | %41s | %8.0f %7.2f\n", kWork[i].name, "", "", rows, rows / sgd_rows);
    }
  }
}

}  // namespace
}  // namespace cairn::optimizer

int main(int argc, char** argv) {
  bool targets = false, json = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--targets") {
      targets = true;
    } else if (argument == "--json") {
      json = true;
    } else {
      std::fprintf(stderr, "unknown argument '%s': micro_optimizer [--targets] [--json]\n", argv[i]);
      return 2;
    }
  }
  if (!json) {
    std::printf("memcpy %.1f GB/s, a += b %.1f GB/s\n", bench::MemcpyGbPerSecond(), bench::AddGbPerSecond());
  }
  cairn::optimizer::Arrays arrays;
  for (const cairn::optimizer::Kernels* kernels : cairn::optimizer::SupportedKernels()) {
    cairn::optimizer::Measure(*kernels, arrays, json);
    if (!targets) break;
  }
  return 0;
}
