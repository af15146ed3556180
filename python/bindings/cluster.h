// cairn._core.EmbeddedCluster, and what the environment says.
#pragma once

#include <nanobind/nanobind.h>

namespace cairn::python {

void BindCluster(nanobind::module_& m);

}  // namespace cairn::python
