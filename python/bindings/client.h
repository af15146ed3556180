// cairn._core.Client and connect().
#pragma once

#include <nanobind/nanobind.h>

namespace cairn::python {

void BindClient(nanobind::module_& m);

}  // namespace cairn::python
