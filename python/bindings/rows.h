// cairn._core.unique and initial_rows: work on keys that asks nobody.
#pragma once

#include <nanobind/nanobind.h>

namespace cairn::python {

void BindRows(nanobind::module_& m);

}  // namespace cairn::python
