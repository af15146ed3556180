// A slow and plain table for the reference model: rows in a map, one number after the other. Says
// what the servers' tables must hold after the same operations, bit for bit. Knows sum and SGD, the
// latter with momentum in dense tables, and in sparse tables every optimizer with state
// (naive_rows.cc): what the lanes use.
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
  double value_scale = 1;
  PushOp op = PushOp::kUpdate;
  std::vector<RowKey> keys;
  std::vector<std::byte> values;
  std::vector<std::byte> mask;  // of segments; empty: all
};

class NaiveTable {
 public:
  using Row = std::vector<std::byte>;
  NaiveTable(const wire::TableInfo& info, SlotId slot, uint32_t slot_count);

  void Apply(std::span<const RowKey> keys, std::span<const std::byte> values, std::span<const std::byte> mask,
             const Hyper& hyper);
  // Dense: the column becomes the values, in the segments of the mask.
  void Assign(std::span<const std::byte> values, std::span<const std::byte> mask, uint8_t column);
  bool assigned() const { return assigned_; }
  // Sparse: the column of the rows becomes the values; once: only in rows that are missing.
  void AssignRows(std::span<const RowKey> keys, std::span<const std::byte> values, uint8_t column, bool once);
  // A round of updates has been applied to the table.
  void CountRound(const Hyper& hyper);
  // All in the given order.
  void ApplyRound(const std::vector<NaiveContribution>& contributions, const Hyper& hyper, double divisor,
                  double scale);
  void AssignRound(const std::vector<NaiveContribution>& contributions, uint8_t column, double divisor);
  // The sum of squares of the round's mean.
  double SumSquares(const std::vector<NaiveContribution>& contributions, double divisor) const;

  Row Read(RowKey key, uint8_t column = 0) const;  // dense: key 0 is the whole slot
  // The same as an answer has it: values in as many bits as the table's wire format has.
  Row Answer(RowKey key, uint8_t column) const;
  // Sparse: a row's values, then its state.
  const std::map<RowKey, Row>& rows() const { return rows_; }

 private:
  // A row's sum over a round; elements that nobody has contributed to do not count.
  struct Sum {
    Row sum;
    std::vector<bool> has;
  };
  std::map<RowKey, Sum> SumUp(const std::vector<NaiveContribution>& contributions) const;
  Row& Find(RowKey key);
  Row Initial(RowKey key) const;
  // Which elements of the row a mask names.
  std::vector<bool> Named(std::span<const std::byte> mask) const;
  // One step of the optimizer with scale * values / divisor.
  void Step(Row& row, const Sum& sum, const Hyper& hyper, float divisor, float scale);
  float StepOne(size_t i, float w, float g, const Hyper& hyper);
  // Sparse, with state: gradients as the optimizer sees them.
  void StepRow(Row& row, const std::vector<float>& gradients, const Hyper& hyper) const;
  Row InitialState() const;
  Row ReadRow(RowKey key, uint8_t column) const;
  // Narrow values: what a step has made of the row is rounded, by its key and its place in the
  // operation.
  void RoundRow(Row& row, RowKey key, uint64_t place) const;
  bool has_row_state() const { return state_width_ > 0; }
  // Makes a step in each segment that has a named element.
  void CountSteps(const std::vector<bool>& named);
  void Put(const Sum& sum, uint8_t column, float divisor);

  wire::TableInfo info_;
  std::vector<wire::DenseRun> runs_;
  size_t element_bytes_;
  size_t row_bytes_;  // of its values
  // Sparse only: columns of state, how many numbers each has in a row, and the slot's step.
  uint32_t state_columns_ = 0;
  size_t state_width_ = 0;
  uint64_t step_ = 0;
  uint64_t operations_ = 0;  // that have changed rows
  std::map<RowKey, Row> rows_;
  // Dense only: the segment of each element, the steps of each segment, SGD's momentum.
  std::vector<uint32_t> segment_of_;
  std::map<uint32_t, uint64_t> steps_;
  std::vector<float> momentum_;
  bool assigned_ = false;
};

}  // namespace cairn::sim
