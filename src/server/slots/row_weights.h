// What all tables weigh in the slots of one shard, for its heartbeats. There may be millions of pairs of a
// table and a slot, and a report with every new state, so many pairs are not counted for each of them:
// what is made is added at once, and everything is counted again when a second has passed. The shard's
// thread owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "table/slot_table.h"

namespace cairn::server {

class RowWeights {
 public:
  static constexpr size_t kFewPairs = 16384;  // are counted for every report
  static constexpr int64_t kCountEveryUs = 1'000'000;

  bool Due(size_t pairs, int64_t now_us) const {
    return pairs <= kFewPairs || counted_us_ < 0 || now_us - counted_us_ >= kCountEveryUs;
  }
  // Everything is counted again: Add of every pair follows.
  void Begin(int64_t now_us) {
    counted_us_ = now_us;
    rows_ = memory_bytes_ = dense_bytes_ = 0;
    content_.clear();
  }
  void Add(uint32_t local, bool sparse, const table::SlotTable& rows) {
    ++looks_;
    const uint64_t bytes = rows.memory_bytes();
    rows_ += rows.rows();
    memory_bytes_ += bytes;
    if (!sparse) dense_bytes_ += bytes;
    if (content_.size() <= local) content_.resize(local + 1);
    content_[local] += rows.content_bytes();
  }
  uint64_t rows() const { return rows_; }
  uint64_t memory_bytes() const { return memory_bytes_; }
  uint64_t dense_bytes() const { return dense_bytes_; }  // of memory_bytes, the dense tables'
  uint64_t content_bytes(uint32_t local) const { return local < content_.size() ? content_[local] : 0; }
  uint64_t looks() const { return looks_; }  // at a pair, so far

 private:
  int64_t counted_us_ = -1;
  uint64_t rows_ = 0, memory_bytes_ = 0, dense_bytes_ = 0;
  std::vector<uint64_t> content_;  // by local slot
  uint64_t looks_ = 0;
};

}  // namespace cairn::server
