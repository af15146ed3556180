#include "table/sparse/row_copy.h"

#include <cstring>

#include "base/check.h"
#include "wire/cluster_state.h"

namespace cairn::table {

size_t RowCopyBytes(size_t count, size_t row_bytes) {
  return 2 * sizeof(uint64_t) + count * (sizeof(RowKey) + row_bytes);
}

void SaveRowsHead(ByteWriter& out, size_t count, size_t row_bytes) {
  out.Put<uint64_t>(count);
  out.Put<uint64_t>(row_bytes);
}

// The index knows keys in an order of its own: the keys are scattered (they are small), so that the
// rows can be copied many at a time.
void SaveRows(ByteWriter& out, const LineIndex& index, const RowSlabs& rows) {
  CAIRN_CHECK(index.size() == rows.count());
  out.Reserve(RowCopyBytes(rows.count(), rows.row_bytes()));
  SaveRowsHead(out, rows.count(), rows.row_bytes());
  std::byte* keys = out.Extend(rows.count() * sizeof(RowKey));
  index.ForEach([&](RowKey key, uint32_t row) {
    std::memcpy(keys + rows.OrderOf(row) * sizeof(RowKey), &key, sizeof(key));
  });
  rows.ForEachRun([&](std::span<const std::byte> run) { out.PutRaw(run); });
}

bool LoadRows(ByteReader& in, SlotId slot, uint32_t slot_count, LineIndex& index, RowSlabs& rows,
              std::vector<RowKey>& keys) {
  CAIRN_CHECK(index.size() == 0 && rows.count() == 0 && keys.empty());
  const auto count = in.Get<uint64_t>();
  const auto row_bytes = in.Get<uint64_t>();
  if (!in.ok() || row_bytes != rows.row_bytes() || count > RowSlabs::kMostRows ||
      count > in.left() / (sizeof(RowKey) + row_bytes)) {
    return false;
  }
  const auto key_bytes = in.GetRaw(count * sizeof(RowKey));
  const auto contents = in.GetRaw(count * row_bytes);
  if (!in.ok()) return false;
  if (count == 0) return true;
  keys.resize(count);
  std::memcpy(keys.data(), key_bytes.data(), key_bytes.size());
  uint32_t wrong = 0;
  for (const RowKey key : keys) wrong |= wire::SlotOfKey(key, slot_count).value ^ slot.value;
  size_t inserted = 0;
  if (wrong == 0) {
    index.Reserve(count);
    inserted = index.InsertAll(keys, [&rows](size_t i) { return rows.RowOf(i); });
    if (inserted == count) {
      rows.AddAll(contents);
      return true;
    }
  }
  index.Clear(std::span(keys).first(inserted));
  keys.clear();
  return false;
}

}  // namespace cairn::table
