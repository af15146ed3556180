// cairn._core: the door between Python and C++. Its interface is python/cairn/_core.pyi; who uses it
// is python/cairn. No header of torch is needed: tensors cross as addresses.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "cairn/types.h"
#include "cairn/version.h"
#include "client.h"
#include "cluster.h"
#include "forked.h"
#include "names.h"
#include "operation.h"
#include "rows.h"
#include "tables.h"

NB_MODULE(_core, m) {
  namespace nb = nanobind;
  using namespace cairn;
  using namespace cairn::python;
  // A process that ends by an exception lets go of nothing, on purpose.
  nb::set_leak_warnings(false);
  WatchForks();
  m.attr("version") = CAIRN_VERSION;
  m.attr("FLAG_MOMENTUM") = static_cast<int>(kWithMomentum);
  m.attr("FLAG_NESTEROV") = static_cast<int>(kNesterov);
  m.attr("FLAG_AMSGRAD") = static_cast<int>(kAmsgrad);
  m.attr("FLAG_CENTERED") = static_cast<int>(kCentered);
  m.attr("FLAG_MAXIMIZE") = static_cast<int>(kMaximize);
  m.attr("FLAG_REDUCE_SUM") = static_cast<int>(kReduceSum);
  m.attr("OP_UPDATE") = static_cast<int>(PushOp::kUpdate);
  m.attr("OP_ASSIGN") = static_cast<int>(PushOp::kAssign);
  m.attr("OP_ASSIGN_ONCE") = static_cast<int>(PushOp::kAssignOnce);
  m.attr("UNBOUNDED") = kUnbounded;  // staleness
  m.attr("STEP_COLUMN") = static_cast<int>(kStepColumn);
  m.def(
      "state_columns",
      [](const std::string& optimizer, uint32_t flags) {
        return StateColumns(OptimizerOf(optimizer), flags);
      },
      nb::arg("optimizer"), nb::arg("flags"), "How many arrays of state such a table has.");
  m.def("forked", &Forked, "True in a child that was forked while its parent had a client or a cluster.");
  BindPending(m);
  BindDense(m);
  BindSparse(m);
  BindRows(m);
  BindRowCache(m);
  BindClient(m);
  BindCluster(m);
}
