#include "operation.h"

#include <algorithm>
#include <utility>

#include "forked.h"
#include "raising.h"
#include "waiting.h"

namespace cairn::python {
namespace nb = nanobind;
namespace {
// Dropped and not yet ended. Never destroyed: it may hold Python objects when the process ends.
std::vector<std::unique_ptr<Operation>>& Dropped() {
  static auto* dropped = new std::vector<std::unique_ptr<Operation>>;
  return *dropped;
}
}  // namespace

PyPending::PyPending(std::unique_ptr<Operation> operation, bool detached)
    : operation_(std::move(operation)), detached_(detached) {
  if (detached) operation_->keep.reset();
}

PyPending::~PyPending() {
  if (!operation_) return;
  if (Forked()) {
    (void)operation_.release();
  } else if (!detached_ && !operation_->pending.ready()) {
    Dropped().push_back(std::move(operation_));
  }
}

void SweepDropped() {
  std::vector<std::unique_ptr<Operation>>& dropped = Dropped();
  if (dropped.empty()) return;
  const auto ended = std::stable_partition(dropped.begin(), dropped.end(),
                                           [](const auto& operation) { return !operation->pending.ready(); });
  // Moved out first: letting go of a tensor may run code that comes here again.
  std::vector<std::unique_ptr<Operation>> over(std::make_move_iterator(ended),
                                               std::make_move_iterator(dropped.end()));
  dropped.erase(ended, dropped.end());
}

bool PyPending::ready() const {
  RefuseInForkedChild();
  return operation_->pending.ready();
}

bool PyPending::WaitFor(int64_t milliseconds) {
  RefuseInForkedChild();
  if (operation_->pending.ready()) return true;
  return WaitInSlices([this](int64_t ms) { return operation_->pending.WaitFor(ms); },
                      std::max<int64_t>(0, milliseconds));
}

void PyPending::Wait() {
  RefuseInForkedChild();
  Operation& operation = *operation_;
  if (!operation.pending.ready()) WaitInSlices([&](int64_t ms) { return operation.pending.WaitFor(ms); });
  operation.keep.reset();
  Check(operation.pending.Wait());
}

void BindPending(nb::module_& m) {
  nb::class_<PyPending>(m, "Pending", "An operation under way.")
      .def("wait", &PyPending::Wait,
           "Returns when the operation has ended; raises its error. Ctrl-C interrupts the wait, not the\n"
           "operation: it may be called again.")
      .def("wait_for", &PyPending::WaitFor, nb::arg("milliseconds"),
           "Waits for at most so long; true if it has ended. Raises nothing of the operation's.")
      .def("ready", &PyPending::ready, "True if it has ended.")
      .def_prop_ro(
          "sum_squares", [](const PyPending& p) { return p.info().sum_squares; },
          "After contribute: of all elements of the mean gradient.")
      .def_prop_ro(
          "finite", [](const PyPending& p) { return p.info().finite; },
          "After contribute: the mean gradient and every worker's part of it is finite.")
      .def_prop_ro(
          "all_joined", [](const PyPending& p) { return p.info().all_joined; },
          "Every live worker had marked the round as joined.");
}

}  // namespace cairn::python
