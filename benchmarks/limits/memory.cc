// Limits of memory: copying, adding, random rows. Plain loops with explicit vectors of the
// compiler, so that a figure compares memory with memory.
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

#include "base/random.h"
#include "limits/limits.h"
#include "limits/repeat.h"

namespace bench {
namespace {

// Touched memory in huge pages where there are any.
class Pages {
 public:
  explicit Pages(size_t bytes) : bytes_(bytes) {
    void* p =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<float*>(p);
    madvise(p, bytes, MADV_HUGEPAGE);
    std::memset(p, 0, bytes);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { munmap(data_, bytes_); }
  float* floats() const { return data_; }
  size_t count() const { return bytes_ / sizeof(float); }

 private:
  size_t bytes_;
  float* data_;
};

constexpr size_t kStreamBytes = size_t{128} << 20;
constexpr int kTimes = 5;
// The second array starts some odd number of cache lines later, as in dense_slot.h.
constexpr size_t kOffset = 5 * 16;

constexpr size_t kRowFloats = 16;
constexpr size_t kRows = 10'000'000;
constexpr size_t kVisits = 1'000'000;
constexpr size_t kAhead = 24;

std::vector<uint32_t> RandomRows() {
  cairn::Random random(7);
  std::vector<uint32_t> rows(kVisits + kAhead);
  for (uint32_t& row : rows) row = static_cast<uint32_t>(random.Below(kRows));
  return rows;
}

// 16 floats at any float's address.
typedef float Row __attribute__((vector_size(kRowFloats * sizeof(float)), aligned(4), may_alias));
void AddRow(float* row, const float* g) { *reinterpret_cast<Row*>(row) += *reinterpret_cast<const Row*>(g); }

}  // namespace

double MemcpyGbPerSecond() {
  Pages a(kStreamBytes), b(kStreamBytes + 4096);
  const double seconds =
      MedianSeconds(kTimes, [&] { std::memcpy(a.floats(), b.floats() + kOffset, kStreamBytes); });
  return kStreamBytes / seconds * 1e-9;
}

double AddGbPerSecond() {
  Pages a(kStreamBytes), b(kStreamBytes + 4096);
  const double seconds = MedianSeconds(kTimes, [&] {
    for (size_t i = 0; i < a.count(); i += kRowFloats) AddRow(a.floats() + i, b.floats() + kOffset + i);
  });
  return kStreamBytes / seconds * 1e-9;
}

double RandomAddRowsPerSecond() {
  Pages table(kRows * kRowFloats * sizeof(float));
  const std::vector<uint32_t> rows = RandomRows();
  float gradient[kRowFloats] = {1, 2, 3};
  const double seconds = MedianSeconds(kTimes, [&] {
    for (size_t i = 0; i < kVisits; ++i) {
      __builtin_prefetch(table.floats() + size_t{rows[i + kAhead]} * kRowFloats, 1);
      AddRow(table.floats() + size_t{rows[i]} * kRowFloats, gradient);
    }
  });
  return kVisits / seconds;
}

double RandomGatherRowsPerSecond() {
  Pages table(kRows * kRowFloats * sizeof(float));
  Pages out(kVisits * kRowFloats * sizeof(float));
  const std::vector<uint32_t> rows = RandomRows();
  const double seconds = MedianSeconds(kTimes, [&] {
    for (size_t i = 0; i < kVisits; ++i) {
      __builtin_prefetch(table.floats() + size_t{rows[i + kAhead]} * kRowFloats);
      std::memcpy(out.floats() + i * kRowFloats, table.floats() + size_t{rows[i]} * kRowFloats,
                  kRowFloats * sizeof(float));
    }
  });
  return kVisits / seconds;
}

}  // namespace bench
