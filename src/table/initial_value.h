// The value of a parameter before its first push: a function of (init, table id, key, column), and
// where init.stream is not 0 of that instead of the table's id: the same bits on every machine and
// in every version. A dense element has its index as key and column 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "cairn/types.h"

namespace cairn::table {

class InitialValue {
 public:
  // Requires kZeros or kConstant where the elements are int64 (the constant is converted, with
  // saturation).
  InitialValue(const Init& init, TableId table, ElementType element);

  // A sparse row; `out` has `columns` elements, aligned to them.
  void FillRow(RowKey key, size_t columns, std::byte* out) const;
  // Dense elements [begin, begin + count).
  void FillElements(uint64_t begin, size_t count, std::byte* out) const;

 private:
  float FromHash(uint64_t hash) const;  // uniform and normal
  void FillSame(size_t count, std::byte* out) const;
  bool same() const { return init_.kind == InitKind::kZeros || init_.kind == InitKind::kConstant; }

  const Init init_;
  const ElementType element_;
  const uint64_t table_seed_;
};

}  // namespace cairn::table
