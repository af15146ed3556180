// A sparse table's rows in one slot: an index (key → row number) over slabs of rows, each with its
// optimizer's state behind its values.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "table/initial_value.h"
#include "table/slot_table.h"
#include "table/sparse/line_index.h"
#include "table/sparse/row_layout.h"
#include "table/sparse/row_slabs.h"
#include "table/sparse/sparse_staging.h"

namespace cairn::table {

class SparseSlot final : public SlotTable {
 public:
  // Requires info.spec.dim > 0.
  SparseSlot(const wire::TableInfo& info, SlotId slot, uint32_t slot_count, Arena& arena);

  Status Check(std::span<const RowKey> keys, std::span<const std::byte> values, Mask mask) const override;
  Status CheckAssign(std::span<const RowKey> keys, std::span<const std::byte> values, Mask mask,
                     uint8_t column) const override;
  Status CheckRead(std::span<const RowKey> keys, uint8_t column) const override;
  void Apply(std::span<const RowKey> keys, std::span<const std::byte> values, Mask mask,
             const Hyper& hyper) override;
  void Assign(std::span<const RowKey> keys, std::span<const std::byte> values, Mask mask,
              uint8_t column) override;
  void AssignMissing(std::span<const RowKey> keys, std::span<const std::byte> values, Mask mask,
                     uint8_t column) override;
  bool assigned() const override { return true; }  // rows are made by pushes: nothing to wait for
  size_t ReadBytes(size_t key_count, uint8_t column) const override {
    return column == kKeyColumn ? rows_.count() * sizeof(RowKey) : key_count * layout_.given_bytes();
  }
  void Read(std::span<const RowKey> keys, uint8_t column, std::byte* out) const override;

  void Stage(std::span<const RowKey> keys, std::span<const std::byte> values, Mask mask,
             double factor) override;
  bool staged() const override { return staged_; }
  Report ReportStaged(double divisor) const override;
  void ApplyStaged(const Hyper& hyper, double divisor, double scale) override;
  void CountRound(const Hyper& hyper) override {
    if (hyper.step != 0) step_ = hyper.step;
  }
  void AssignStaged(uint8_t column, double divisor) override;  // never: rows are assigned by pushes
  void DropStaged() override;

  uint64_t rows() const override { return rows_.count(); }
  uint64_t memory_bytes() const override;
  uint64_t content_bytes() const override;
  uint64_t Hash() const override;
  void Save(ByteWriter& out) const override;
  bool Load(ByteReader& in) override;
  void SaveStaged(ByteWriter& out) const override;
  bool LoadStaged(ByteReader& in) override;
  void ForEach(const std::function<void(RowKey, std::span<const std::byte>)>& row) const override;

 private:
  std::string Where() const;
  Status CheckKeys(std::span<const RowKey> keys) const;
  Status CheckColumn(uint8_t column) const;  // the values, state or steps
  void ReadValues(std::span<const RowKey> keys, std::byte* out) const;
  void ReadNarrowValues(std::span<const RowKey> keys, float* out) const;
  SparseStaging& Staging();
  // A row with the key's initial value and state. Requires that the key has none.
  uint32_t CreateRow(RowKey key, uint64_t hash);
  // work(i, row's address) for each key, rows created where they are missing.
  template <class Work>
  void UpdateRows(std::span<const RowKey> keys, Work work);
  // The optimizer on float rows; gradient(i) is where that of keys[i] lies.
  enum class Keys { kOfAPush, kOfARound };  // of a round: each once, in the order of arrival
  template <class GradientAt>
  void UpdateFloats(std::span<const RowKey> keys, Keys kind, const Hyper& hyper, const optimizer::OfMean& of,
                    GradientAt gradient);
  // The same where values are narrow.
  template <class GradientAt>
  void UpdateNarrow(std::span<const RowKey> keys, Keys kind, const optimizer::NarrowRowStep& step,
                    GradientAt gradient);
  // A row's values become these.
  void PutValues(std::byte* row, const float* values);
  // A column of it: the values or state.
  void Put(std::byte* row, uint8_t column, const float* given);
  bool narrow() const { return storage_ != Storage::kFull; }

  const std::string name_;
  const ElementType element_;
  const OptimizerKind optimizer_;
  const uint32_t flags_;
  const Storage storage_;
  const bool check_finite_;
  const uint32_t dim_;
  const SlotId slot_;
  const uint32_t slot_count_;
  const InitialValue initial_;
  const RowLayout layout_;
  Arena& arena_;
  LineIndex index_;
  RowSlabs rows_;
  std::unique_ptr<SparseStaging> staging_;  // made by the first Stage or LoadStaged
  bool staged_ = false;
  uint64_t step_ = 0;  // kStepColumn
  // Narrow values: what decides how they are rounded is a function of the table's seed, this number
  // of operations (pushes, rounds) that have changed rows, the key and its place in the operation.
  const uint64_t rounding_seed_;
  uint64_t operations_ = 0;
  std::vector<float> wide_;  // a row before it is rounded
};

}  // namespace cairn::table
