// cairn._core.DenseTable and SparseTable: addresses in, a Pending out. Arrays are used where they
// lie; whether an address is right is the caller's business (cairn/_tables/tensors.py).
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "cairn/client.h"
#include "forked.h"
#include "operation.h"
#include "raising.h"
#include "waiting.h"

namespace cairn::python {

struct PyDense {
  Owned<DenseTable> table;
};
struct PySparse {
  Owned<SparseTable> table;
};

// lr, weight_decay, beta1, beta2, eps, dampening.
using HyperTuple = std::array<double, 6>;
inline constexpr HyperTuple kDefaultHyper = {0.01, 0, 0, 0, 0, 0};

void BindDense(nanobind::module_& m);
void BindSparse(nanobind::module_& m);

// What calls on both kinds of tables do alike.

template <class Table>
bool IsInt64(const Table& self) {
  return self.table->spec().element == ElementType::kInt64;
}
template <class Table>
bool IsAsync(const Table& self) {
  return self.table->spec().mode == Mode::kAsync;
}

// What every call begins with.
inline std::unique_ptr<Operation> BeginOperation(const nanobind::object& keep) {
  RefuseInForkedChild();
  SweepDropped();
  auto operation = std::make_unique<Operation>();
  operation->keep = keep;
  return operation;
}

// The step is for sparse tables; dense ones count by themselves.
template <class Options, class Table>
Options OptionsOf(Operation& operation, const Table& self, const HyperTuple& hyper, double weight,
                  int64_t timeout_ms, uint64_t step = 0) {
  Options options;
  options.hyper = {hyper[0], hyper[1], hyper[2], hyper[3], hyper[4], hyper[5], step};
  options.weight = weight;
  options.timeout_ms = timeout_ms;
  if (!IsAsync(self)) options.info = &operation.info;
  return options;
}

inline PushOp OpOf(int op) {
  if (op < 0 || op > static_cast<int>(PushOp::kAssignOnce))
    RaiseNamed("InvalidArgumentError",
               "op is OP_UPDATE, OP_ASSIGN or OP_ASSIGN_ONCE, not " + std::to_string(op));
  return static_cast<PushOp>(op);
}

inline uint8_t ColumnOf(int column) {
  if (column < 0 || column > UINT8_MAX)
    RaiseNamed("InvalidArgumentError", "there is no column " + std::to_string(column));
  return static_cast<uint8_t>(column);
}

// Runs `call` without the GIL; it gives the operation its Pending.
template <class Call>
PyPending Go(std::unique_ptr<Operation> operation, bool detached, Call call) {
  {
    nanobind::gil_scoped_release released;
    operation->pending = call();
  }
  RaiseIfSet();
  return PyPending(std::move(operation), detached);
}

template <class Table>
uint64_t RoundOf(Table& self) {
  RefuseInForkedChild();
  Result<uint64_t> round(0);
  {
    nanobind::gil_scoped_release released;
    round = self.table->round();
  }
  return Take(std::move(round));
}

}  // namespace cairn::python
