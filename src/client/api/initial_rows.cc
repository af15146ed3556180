// The initial rows of a table, computed where they are wanted by what the servers use too.
#include "base/check.h"
#include "cairn/client.h"
#include "optimizer/narrow.h"
#include "table/initial_value.h"

namespace cairn {

void InitialRows(const Init& init, std::span<const RowKey> keys, uint32_t dim,
                 std::span<float> out, Storage storage) {
  CAIRN_CHECK(out.size() == keys.size() * dim);
  // The number of the table takes no part where a stream is given.
  const table::InitialValue initial(init, TableId{0}, ElementType::kFloat32);
  auto* to = reinterpret_cast<std::byte*>(out.data());
  for (RowKey key : keys) {
    initial.FillRow(key, dim, to);
    to += dim * sizeof(float);
  }
  if (storage != Storage::kFull) optimizer::RoundSpan(storage, out);
}

}  // namespace cairn
