// A slow and plain table for the reference model: rows in a map, one number after the other. Says
// what the servers' tables must hold after the same operations, bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/ids.h"
#include "cairn/types.h"
#include "wire/cluster_state.h"

namespace cairn::sim {

// One worker's values for a round.
struct NaiveContribution {
  uint32_t rank = 0;
  double weight = 1;
  std::vector<RowKey> keys;
  std::vector<std::byte> values;
};

class NaiveTable {
 public:
  using Row = std::vector<std::byte>;
  NaiveTable(const wire::TableInfo& info, SlotId slot, uint32_t slot_count);

  void Apply(std::span<const RowKey> keys, std::span<const std::byte> values, const Hyper& hyper);
  // In the given order.
  void ApplyRound(const std::vector<NaiveContribution>& contributions, const Hyper& hyper, double divisor);
  Row Read(RowKey key) const;  // dense: key 0 is the whole slot
  const std::map<RowKey, Row>& rows() const { return rows_; }

 private:
  Row& Find(RowKey key);
  Row Initial(RowKey key) const;
  void Add(Row& row, const std::byte* values) const;  // row += values
  void Step(Row& row, const std::byte* values, const Hyper& hyper, float divisor, bool mean) const;

  wire::TableInfo info_;
  std::vector<wire::DenseRun> runs_;
  size_t element_bytes_;
  size_t row_bytes_;
  std::map<RowKey, Row> rows_;
};

}  // namespace cairn::sim
