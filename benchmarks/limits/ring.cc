// Limits of shared memory: a ring between two processes, as bare as can be. No trust, no framing, no
// doorbell: who waits pauses and then yields. The parent measures; the child is the other end.
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "limits/limits.h"
#include "limits/repeat.h"
#include "optimizer/span_ops.h"

namespace bench {
namespace {

constexpr size_t kRingBytes = size_t{2} << 20;
constexpr size_t kPieceBytes = size_t{64} << 10;
constexpr size_t kArrayBytes = size_t{16} << 20;  // what a push of 16 MB reads, and what it adds to
constexpr size_t kBytesPerTurn = 16 * kArrayBytes;
constexpr size_t kSmallPush = 4096, kAnswer = 64;
constexpr int kTimes = 5, kRoundTrips = 20'000, kPauses = 64;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}
template <class Ready>
void WaitUntil(Ready ready) {
  for (int i = 0; i < kPauses; ++i) {
    if (ready()) return;
    Pause();
  }
  while (!ready()) sched_yield();
}

// One direction. Lies in memory that both processes map; each end keeps its own copy of what it last
// saw of the other's counter.
struct Ring {
  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> read{0};
  alignas(64) std::atomic<bool> stop{false};
  alignas(4096) std::byte data[kRingBytes];

  // `bytes` divides kRingBytes, so a piece never wraps. False if the other end has stopped.
  bool Write(const std::byte* from, size_t bytes) {
    const uint64_t at = written.load(std::memory_order_relaxed);
    WaitUntil([&] {
      return at + bytes - read.load(std::memory_order_acquire) <= kRingBytes ||
             stop.load(std::memory_order_relaxed);
    });
    if (stop.load(std::memory_order_relaxed)) return false;
    std::memcpy(data + at % kRingBytes, from, bytes);
    written.store(at + bytes, std::memory_order_release);
    return true;
  }
  // `take(const std::byte*)` sees the piece in the ring, once.
  template <class Take>
  bool Read(size_t bytes, Take take) {
    const uint64_t at = read.load(std::memory_order_relaxed);
    WaitUntil([&] {
      return written.load(std::memory_order_acquire) - at >= bytes || stop.load(std::memory_order_relaxed);
    });
    if (stop.load(std::memory_order_relaxed)) return false;
    take(data + at % kRingBytes);
    read.store(at + bytes, std::memory_order_release);
    return true;
  }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

struct Rings {
  Ring there, back;
};

// Both rings and the child that runs `other`, which ends when the rings stop or this process dies.
class Pair {
 public:
  template <class Other>
  explicit Pair(Other other) {
    void* p = mmap(nullptr, sizeof(Rings), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    rings_ = new (p) Rings;
    child_ = fork();
    if (child_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      other(*rings_);
      _exit(0);
    }
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  ~Pair() {
    rings_->there.stop = true;
    rings_->back.stop = true;
    if (child_ > 0) waitpid(child_, nullptr, 0);
    munmap(rings_, sizeof(Rings));
  }
  bool ok() const { return child_ > 0; }
  Rings& rings() { return *rings_; }

 private:
  Rings* rings_;
  pid_t child_;
};

// Copies floats and says whether all are finite, in whatever vectors the compiler may use.
inline __attribute__((always_inline)) bool CopyFinite(const std::byte* from, std::byte* to, size_t bytes) {
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t bad = 0;
  const auto* in = reinterpret_cast<const uint32_t*>(from);
  auto* out = reinterpret_cast<uint32_t*>(to);
  for (size_t i = 0; i < bytes / sizeof(uint32_t); ++i) {
    const uint32_t bits = in[i];
    out[i] = bits;
    bad |= (bits & kExponent) == kExponent ? 1u : 0u;
  }
  return bad == 0;
}
inline __attribute__((always_inline)) bool CopyCheckAddHere(const std::byte* from, std::byte* piece,
                                                            float* sum) {
  if (!CopyFinite(from, piece, kPieceBytes)) return false;
  const auto* add = reinterpret_cast<const float*>(piece);
  for (size_t i = 0; i < kPieceBytes / sizeof(float); ++i) sum[i] += add[i];
  return true;
}
bool CopyCheckAdd(const std::byte* from, std::byte* piece, float* sum) {
  return CopyCheckAddHere(from, piece, sum);
}
#if defined(__x86_64__)
__attribute__((target("avx2"))) bool CopyCheckAddAvx2(const std::byte* from, std::byte* piece, float* sum) {
  return CopyCheckAddHere(from, piece, sum);
}
#endif

using TakePiece = bool (*)(const std::byte* from, std::byte* piece, float* sum);
TakePiece Summing() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return CopyCheckAddAvx2;
#endif
  return CopyCheckAdd;
}
bool OnlyCopy(const std::byte* from, std::byte* piece, float*) {
  std::memcpy(piece, from, kPieceBytes);
  return true;
}

double StreamGbPerSecond(TakePiece take) {
  Pair pair([](Rings& rings) {
    const std::vector<float> source(kArrayBytes / sizeof(float), 1e-3f);
    const auto* bytes = reinterpret_cast<const std::byte*>(source.data());
    for (size_t at = 0; rings.there.Write(bytes + at, kPieceBytes);) at = (at + kPieceBytes) % kArrayBytes;
  });
  if (!pair.ok()) return kNone;
  std::vector<std::byte> piece(kPieceBytes);
  std::vector<float> sum(kArrayBytes / sizeof(float));
  bool ok = true;
  const double seconds = MedianSeconds(kTimes, [&] {
    for (size_t got = 0; got < kBytesPerTurn; got += kPieceBytes) {
      float* to = sum.data() + got % kArrayBytes / sizeof(float);
      pair.rings().there.Read(kPieceBytes,
                              [&](const std::byte* from) { ok &= take(from, piece.data(), to); });
    }
  });
  return ok ? kBytesPerTurn / seconds * 1e-9 : kNone;
}

}  // namespace

double RingGbPerSecond() { return StreamGbPerSecond(OnlyCopy); }
double RingSumGbPerSecond() { return StreamGbPerSecond(Summing()); }

double RingPushGbPerSecond() {
  Pair pair([](Rings& rings) {
    std::vector<std::byte> piece(kPieceBytes);
    std::vector<float> sum(kArrayBytes / sizeof(float));
    const TakePiece take = Summing();
    const std::byte answer[kAnswer] = {};
    for (bool goes_on = true; goes_on;) {
      for (size_t got = 0; goes_on && got < kArrayBytes; got += kPieceBytes) {
        float* to = sum.data() + got / sizeof(float);
        goes_on = rings.there.Read(kPieceBytes, [&](const std::byte* from) { take(from, piece.data(), to); });
      }
      goes_on = goes_on && rings.back.Write(answer, kAnswer);
    }
  });
  if (!pair.ok()) return kNone;
  const std::vector<float> source(kArrayBytes / sizeof(float), 1e-3f);
  const auto* bytes = reinterpret_cast<const std::byte*>(source.data());
  std::byte answer[kAnswer];
  bool ok = true;
  const double seconds = MedianSeconds(kTimes * 20, [&] {
    ok &= cairn::optimizer::AllFinite(source);
    for (size_t at = 0; at < kArrayBytes; at += kPieceBytes)
      pair.rings().there.Write(bytes + at, kPieceBytes);
    pair.rings().back.Read(kAnswer, [&](const std::byte* p) { std::memcpy(answer, p, kAnswer); });
  });
  return ok ? kArrayBytes / seconds * 1e-9 : kNone;
}

double RingPingUs() {
  Pair pair([](Rings& rings) {
    std::byte message[kSmallPush] = {};
    while (rings.there.Read(kSmallPush, [&](const std::byte* p) { std::memcpy(message, p, kSmallPush); }) &&
           rings.back.Write(message, kAnswer)) {
    }
  });
  if (!pair.ok()) return kNone;
  std::byte message[kSmallPush] = {};
  const double seconds = MedianSeconds(kTimes, [&] {
    for (int i = 0; i < kRoundTrips; ++i) {
      pair.rings().there.Write(message, kSmallPush);
      pair.rings().back.Read(kAnswer, [&](const std::byte* p) { std::memcpy(message, p, kAnswer); });
    }
  });
  return seconds / kRoundTrips * 1e6;
}

}  // namespace bench
