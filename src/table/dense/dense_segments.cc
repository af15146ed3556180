#include "table/dense/dense_segments.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace cairn::table {
namespace {

// x with a * x = 1 modulo n. Requires coprime a and n.
uint64_t InverseModulo(uint64_t a, uint64_t n) {
  int64_t r0 = static_cast<int64_t>(n), r1 = static_cast<int64_t>(a % n), t0 = 0, t1 = 1;
  while (r1 > 0) {
    const int64_t q = r0 / r1;
    r0 = std::exchange(r1, r0 - q * r1);
    t0 = std::exchange(t1, t0 - q * t1);
  }
  CAIRN_CHECK(r0 == 1);
  return static_cast<uint64_t>(t0 < 0 ? t0 + static_cast<int64_t>(n) : t0);
}

}  // namespace

// The stride is coprime to the number of slots, so every slot_count-th block is this slot's.
std::vector<wire::DenseRun> RunsOf(const wire::DenseLayout& layout, SlotId slot) {
  std::vector<wire::DenseRun> runs;
  const uint64_t n = layout.slot_count, steps = (slot.value + n - layout.start % n) % n;
  const uint64_t first = n == 1 ? 0 : steps * InverseModulo(layout.stride, n) % n;
  for (uint64_t b = first; b < layout.block_count(); b += n) {
    const uint64_t begin = b * layout.block;
    runs.push_back({begin, static_cast<uint32_t>(std::min<uint64_t>(layout.block, layout.size - begin))});
  }
  CAIRN_CHECK(runs.empty() || layout.SlotOfBlock(first) == slot.value);
  return runs;
}

std::vector<DensePiece> PiecesOf(const std::vector<wire::DenseRun>& runs,
                                 const std::vector<uint64_t>& segments) {
  std::vector<DensePiece> pieces;
  size_t packed = 0;
  const auto add = [&](uint32_t segment, uint64_t count) {
    if (pieces.empty() || pieces.back().segment != segment) pieces.push_back({segment, packed, 0});
    pieces.back().count += count;
    packed += count;
  };
  for (const wire::DenseRun& run : runs) {
    if (segments.empty()) {
      add(0, run.count);
      continue;
    }
    const uint64_t end = run.begin + run.count;
    // The first segment that ends after the run's beginning.
    auto at = std::upper_bound(segments.begin(), segments.end(), run.begin);
    for (uint64_t from = run.begin; from < end; ++at) {
      CAIRN_CHECK(at != segments.end());
      const uint64_t to = std::min(end, *at);
      add(static_cast<uint32_t>(at - segments.begin()), to - from);
      from = to;
    }
  }
  return pieces;
}

}  // namespace cairn::table
