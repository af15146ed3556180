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

namespace cairn {
class ByteReader;  // base/byte_stream.h
class ByteWriter;
}  // namespace cairn

namespace cairn::table {

// Bit s (byte s / 8, least significant first): segment s of a dense table takes part. Empty: all.
// Bits beyond its end are clear.
using Mask = std::span<const std::byte>;
inline bool InMask(Mask mask, size_t segment) {
  if (mask.empty()) return true;
  const size_t byte = segment / 8;
  return byte < mask.size() && (std::to_integer<unsigned>(mask[byte]) >> (segment % 8) & 1) != 0;
}

class Arena;  // huge-page chunks, one per shard thread: table/memory/arena.h

class SlotTable {
 public:
  // kToLoad: the next call is Load. The initial values of a dense slot, which may take a hundred times
  // longer than Load does, are not computed.
  enum class Purpose { kToUse, kToLoad };
  // `arena` must outlive the table.
  static std::unique_ptr<SlotTable> Make(const wire::TableInfo& info, SlotId slot, uint32_t slot_count,
                                         Arena& arena, Purpose purpose = Purpose::kToUse);
  virtual ~SlotTable() = default;

  // Shapes, and finiteness where the policy is `reject`. Call it before Apply or Stage: they
  // require that it said ok. Dense: keys is empty and values is the whole packed slot; the mask
  // says which segments of the table are in it (empty: all; the values of others are ignored).
  // Sparse: values is keys.size() rows; a key may repeat (its rows are taken one after the other);
  // every key must belong to this slot; no mask.
  virtual Status Check(std::span<const RowKey> keys, std::span<const std::byte> values, Mask mask) const = 0;
  // An assign of a column: float32 tables only. Dense: a column that exists; sparse: column 0. Keys,
  // values and mask as in Check.
  virtual Status CheckAssign(std::span<const RowKey> keys, std::span<const std::byte> values, Mask mask,
                             uint8_t column) const = 0;
  // Shapes of a pull: a column that exists; dense: no keys; sparse: keys of this slot, none for
  // kKeyColumn.
  virtual Status CheckRead(std::span<const RowKey> keys, uint8_t column) const = 0;
  // Async: the optimizer at once, row by row. A sparse slot remembers the highest hyper.step.
  virtual void Apply(std::span<const RowKey> keys, std::span<const std::byte> values, Mask mask,
                     const Hyper& hyper) = 0;
  // Dense: the column becomes `values`, but for the segments that the mask leaves out; column 0 makes
  // the slot assigned. Sparse: the rows of the keys have `values` in that column, and keep the others; a
  // row that is missing is made; of a key that repeats the last row counts. (kStepColumn: the slot's step
  // becomes the last number, and no row is made.) Requires CheckAssign.
  virtual void Assign(std::span<const RowKey> keys, std::span<const std::byte> values, Mask mask,
                      uint8_t column) = 0;
  // The same where nothing has been assigned: dense: in a slot that is not assigned; sparse: in rows
  // that are missing (kStepColumn: in a slot whose step is 0).
  virtual void AssignMissing(std::span<const RowKey> keys, std::span<const std::byte> values, Mask mask,
                             uint8_t column) = 0;
  // Column 0 has been assigned (a slot without elements, and a sparse one: always).
  virtual bool assigned() const = 0;
  // Bytes that Read writes for so many keys of this column.
  virtual size_t ReadBytes(size_t key_count, uint8_t column) const = 0;
  // A column now; a missing row reads as its initial value or state and is not created. kKeyColumn:
  // the keys of all rows, in no particular order.
  virtual void Read(std::span<const RowKey> keys, uint8_t column, std::byte* out) const = 0;
  // What Read would write for all of a dense slot, where it lies like that in memory; until the next
  // change.
  virtual std::span<const std::byte> View(uint8_t) const { return {}; }

  // Sync: adds factor × values to the round's sums (kSum of int64 ignores the factor). The first
  // contribution to a row or segment is copied, later ones added.
  virtual void Stage(std::span<const RowKey> keys, std::span<const std::byte> values, Mask mask,
                     double factor) = 0;
  virtual bool staged() const = 0;
  // Sum of the squares of the staged sums / divisor, in an order that is fixed, and whether all of
  // them are finite.
  struct Report {
    double sum_squares = 0;
    bool finite = true;
  };
  virtual Report ReportStaged(double divisor) const = 0;
  // The optimizer once, with scale × sum / divisor (kSum: with the sum), then the staging is empty.
  // Only segments that somebody has staged take part. Requires divisor > 0 unless the optimizer is
  // kSum; kReduceSum is the caller's business (it gives divisor 1).
  virtual void ApplyStaged(const Hyper& hyper, double divisor, double scale) = 0;
  // A round of updates has been applied, to the table if not to this slot: a sparse slot remembers
  // hyper.step, if that is not 0. Not for a round that was skipped or refused, or whose divisor was 0.
  virtual void CountRound(const Hyper& hyper) = 0;
  // The column becomes sum / divisor. Requires that the table allows assigns.
  virtual void AssignStaged(uint8_t column, double divisor) = 0;
  virtual void DropStaged() = 0;

  virtual uint64_t rows() const = 0;  // sparse: rows stored; dense: elements
  virtual uint64_t memory_bytes() const = 0;
  // What the content weighs, about as much as it takes: the same on every owner, however it came to be
  // there, and whatever is staged.
  virtual uint64_t content_bytes() const = 0;
  // Of values, state, steps and whether the slot is assigned; not of what is staged. By key and
  // content, not by layout or history: equal content gives equal hashes.
  virtual uint64_t Hash() const = 0;

  // Everything: values, optimizer state, steps, assigned, and the staged sums if there are any.
  virtual void Save(ByteWriter& out) const = 0;
  // The reverse, into a table made of the same TableInfo that nothing has been done to: from then on
  // both give the same bits. False if the bytes are not what Save makes: then the table is only good
  // to be destroyed. Takes no more memory than the bytes justify, whatever they say. What follows
  // them in `in` is left there.
  virtual bool Load(ByteReader& in) = 0;
  // The staged sums alone, with the segments or rows that they are of. Requires staged().
  virtual void SaveStaged(ByteWriter& out) const = 0;
  // Makes them the staged sums: ReportStaged, ApplyStaged and so on give the same bits as at the
  // sender, if its content is the same. Requires !staged(). False if the bytes are not what SaveStaged
  // makes: then nothing is staged.
  virtual bool LoadStaged(ByteReader& in) = 0;

  // Every stored row (dense: one call with key 0), in no particular order. Sparse: its values, then
  // its state.
  virtual void ForEach(const std::function<void(RowKey, std::span<const std::byte>)>& row) const = 0;
};

}  // namespace cairn::table
