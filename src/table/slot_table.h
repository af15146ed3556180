// One table's rows in one slot: storage and arithmetic, no network. One shard thread owns it; no
// locks. A slot's content is a function of the operations applied to it, in order: the same bits
// on every machine (no fused multiply-add, no sum whose order depends on a vector's width).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/ids.h"
#include "cairn/status.h"
#include "cairn/types.h"
#include "wire/cluster_state.h"

namespace cairn::table {

class Arena;  // huge-page chunks, one per shard thread: table/arena.h

class SlotTable {
 public:
  // `arena` must outlive the table.
  static std::unique_ptr<SlotTable> Make(const wire::TableInfo& info, SlotId slot, uint32_t slot_count,
                                         Arena& arena);
  virtual ~SlotTable() = default;

  // Shapes, and finiteness where the policy is `reject`. Call it before Apply or Stage: they
  // require that it said ok. Dense: keys is empty and values is the whole packed slot. Sparse:
  // values is keys.size() rows; a key may repeat (its rows are taken one after the other); every
  // key must belong to this slot.
  virtual Status Check(std::span<const RowKey> keys, std::span<const std::byte> values) const = 0;
  // Shapes of a pull: dense: no keys; sparse: keys of this slot.
  virtual Status CheckKeys(std::span<const RowKey> keys) const = 0;
  // Async: the optimizer at once, row by row.
  virtual void Apply(std::span<const RowKey> keys, std::span<const std::byte> values, const Hyper& hyper) = 0;
  // Bytes that Read writes for these keys.
  virtual size_t ReadBytes(size_t key_count) const = 0;
  // Values now; a missing row reads as its initial value and is not created.
  virtual void Read(std::span<const RowKey> keys, std::byte* out) const = 0;

  // Sync: adds weight × values to the round's sums (kSum and int64 ignore the weight). The first
  // contribution is copied, later ones added.
  virtual void Stage(std::span<const RowKey> keys, std::span<const std::byte> values, double weight) = 0;
  virtual bool staged() const = 0;
  // The optimizer once, with sum / divisor (kSum: with the sum), then the staging is empty.
  // Requires divisor > 0 unless the optimizer is kSum.
  virtual void ApplyStaged(const Hyper& hyper, double divisor) = 0;
  virtual void DropStaged() = 0;

  virtual uint64_t rows() const = 0;          // sparse: rows stored; dense: elements
  virtual uint64_t memory_bytes() const = 0;
  // By key and value, not by layout: equal content gives equal hashes.
  virtual uint64_t Hash() const = 0;
  // Every stored row (dense: one call with key 0), in no particular order.
  virtual void ForEach(const std::function<void(RowKey, std::span<const std::byte>)>& row) const = 0;
};

}  // namespace cairn::table
