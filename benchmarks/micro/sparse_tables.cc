#include "sparse_tables.h"

#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "table/sparse/row_layout.h"
#include "wire/cluster_state.h"

namespace bench {
namespace {

using namespace cairn;

double Microseconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

long PageFaults() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

template <class T>
std::span<T> PartOf(std::span<T> values, const Frame& frame, uint32_t slot) {
  return values.subspan(frame.begin[slot] * kDim, frame.of(slot).size() * kDim);
}

}  // namespace

std::vector<Frame> MakeFrames(uint64_t rows, size_t keys, size_t count) {
  Random random(3);
  std::vector<Frame> frames(count);
  for (Frame& frame : frames) {
    std::vector<std::vector<RowKey>> by_slot(kSlots);
    for (size_t i = 0; i < keys; ++i) {
      const RowKey key = random.Below(rows);
      by_slot[wire::SlotOfKey(key, kSlots).value].push_back(key);
    }
    frame.begin.push_back(0);
    for (const auto& part : by_slot) {
      frame.keys.insert(frame.keys.end(), part.begin(), part.end());
      frame.begin.push_back(frame.keys.size());
    }
  }
  return frames;
}

SparseTables::SparseTables(const TableOptions& given) : options(given) {
  TableSpec spec{.name = "emb", .kind = TableKind::kSparse, .optimizer = options.optimizer, .dim = kDim};
  spec.storage = options.storage;
  const wire::TableInfo info{TableId{1}, spec, ViewNumber{1}};
  row_bytes = table::RowLayout(spec).row_bytes();
  for (uint32_t s = 0; s < kSlots; ++s)
    slots.push_back(table::SlotTable::Make(info, SlotId{s}, kSlots, arena));
  const std::vector<float> zeros(kBatch * kDim);
  std::vector<std::vector<RowKey>> waiting(kSlots);
  const auto flush = [&](uint32_t s) {
    const auto values = std::as_bytes(std::span(zeros).first(waiting[s].size() * kDim));
    const long faults = PageFaults();
    const double wall = Microseconds(CLOCK_MONOTONIC), start = Microseconds(CLOCK_THREAD_CPUTIME_ID);
    slots[s]->Apply(waiting[s], values, {}, {});
    const double us = Microseconds(CLOCK_THREAD_CPUTIME_ID) - start;
    pauses.wall_us = std::max(pauses.wall_us, Microseconds(CLOCK_MONOTONIC) - wall);
    const bool page = PageFaults() != faults;
    double& longest = page ? pauses.page_us : pauses.growth_us;
    longest = std::max(longest, us);
    ++pauses.batches;
    pauses.with_page += page;
    pauses.above_5_ms += us > 5000;
    waiting[s].clear();
  };
  for (RowKey key = 0; key < options.rows; ++key) {
    const uint32_t s = wire::SlotOfKey(key, kSlots).value;
    waiting[s].push_back(key);
    if (waiting[s].size() == kBatch) flush(s);
  }
  for (uint32_t s = 0; s < kSlots; ++s) flush(s);
  for (const auto& slot : slots) counted_bytes += slot->memory_bytes();
}

void SparseTables::Push(const Frame& frame, std::span<const float> values, const Hyper& hyper) {
  for (uint32_t s = 0; s < kSlots; ++s)
    slots[s]->Apply(frame.of(s), std::as_bytes(PartOf(values, frame, s)), {}, hyper);
}

bool SparseTables::CheckAndPush(const Frame& frame, std::span<const float> values, const Hyper& hyper) {
  bool good = true;
  for (uint32_t s = 0; s < kSlots; ++s) {
    const auto part = std::as_bytes(PartOf(values, frame, s));
    good &= slots[s]->Check(frame.of(s), part, {}).ok();
    slots[s]->Apply(frame.of(s), part, {}, hyper);
  }
  return good;
}

void SparseTables::Pull(const Frame& frame, std::span<float> out) const {
  for (uint32_t s = 0; s < kSlots; ++s)
    slots[s]->Read(frame.of(s), 0, reinterpret_cast<std::byte*>(PartOf(out, frame, s).data()));
}

ProcessMemory ReadProcessMemory() {
  ProcessMemory memory;
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string word; file >> word;) {
    uint64_t kilobytes = 0;
    if (word == "Rss:" && file >> kilobytes) memory.resident = kilobytes * 1024;
    if (word == "AnonHugePages:" && file >> kilobytes) memory.huge = kilobytes * 1024;
  }
  return memory;
}

}  // namespace bench
