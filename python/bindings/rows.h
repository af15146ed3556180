// cairn._core.unique, initial_rows, gather_rows, add_rows, all_finite: work on keys and rows that asks
// nobody; and RowCache.
#pragma once

#include <nanobind/nanobind.h>

namespace cairn::python {

void BindRows(nanobind::module_& m);
void BindRowCache(nanobind::module_& m);

}  // namespace cairn::python
