// cairn._core.DenseTable and SparseTable: addresses in, a Pending out. Arrays are used where they
// lie; whether an address is right is the caller's business (cairn/tensors.py).
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <utility>

#include "cairn/client.h"
#include "forked.h"

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
inline Hyper HyperOf(const HyperTuple& h) { return {h[0], h[1], h[2], h[3], h[4], h[5]}; }

void BindDense(nanobind::module_& m);
void BindSparse(nanobind::module_& m);

}  // namespace cairn::python
