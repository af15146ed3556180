#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "operation.h"
#include "raising.h"
#include "tables.h"

namespace cairn::python {
namespace nb = nanobind;
using nb::literals::operator""_a;
namespace {

using Numbers = std::vector<uint64_t>;

// The pieces of an array: addresses and sizes, in order.
struct Array {
  const Numbers& addresses;
  const Numbers& sizes;
};

void RequirePairs(const Array& array) {
  if (array.addresses.size() == array.sizes.size()) return;
  RaiseNamed("InvalidArgumentError", std::to_string(array.addresses.size()) + " addresses and " +
                                         std::to_string(array.sizes.size()) + " sizes were given");
}

template <class T>
std::vector<std::span<T>> PiecesOf(const Array& array) {
  RequirePairs(array);
  std::vector<std::span<T>> pieces;
  pieces.reserve(array.addresses.size());
  for (size_t i = 0; i < array.addresses.size(); ++i) {
    pieces.emplace_back(reinterpret_cast<T*>(array.addresses[i]), array.sizes[i]);
  }
  return pieces;
}

// Tables of int64 take one piece.
template <class T>
std::span<T> OnePiece(const PyDense& self, const Array& array) {
  RequirePairs(array);
  if (array.addresses.size() != 1 || array.addresses[0] == 0) {
    RaiseNamed("InvalidArgumentError", "table \"" + self.table->spec().name +
                                           "\" holds int64: one array in one piece is what it takes, not " +
                                           std::to_string(array.addresses.size()));
  }
  return {reinterpret_cast<T*>(array.addresses[0]), array.sizes[0]};
}

template <class Options>
void SetMask(Operation& operation, Options& options, const nb::bytes& mask) {
  operation.mask.assign(mask.c_str(), mask.size());
  options.mask = std::as_bytes(std::span(operation.mask));
}

template <class Options>
void SetOp(Options& options, int op, int column) {
  options.op = OpOf(op);
  options.column = ColumnOf(column);
}

PyPending Push(PyDense& self, const Numbers& addresses, const Numbers& sizes, const HyperTuple& hyper,
               double weight, bool weighted, const nb::bytes& mask, int op, int column, double value_scale,
               int64_t timeout_ms, const nb::object& keep) {
  auto operation = BeginOperation(keep);
  Operation& o = *operation;
  auto options = OptionsOf<PushOptions>(o, self, hyper, weight, timeout_ms);
  options.weighted = weighted;
  SetMask(o, options, mask);
  SetOp(options, op, column);
  options.value_scale = value_scale;
  if (IsInt64(self)) {
    const auto values = OnePiece<const int64_t>(self, {addresses, sizes});
    return Go(std::move(operation), IsAsync(self), [&] { return self.table->Push(values, options); });
  }
  o.in = PiecesOf<const float>({addresses, sizes});
  return Go(std::move(operation), IsAsync(self),
            [&] { return self.table->Push(ConstPieces(o.in), options); });
}

PyPending Pull(PyDense& self, const Numbers& addresses, const Numbers& sizes, int column, bool when_assigned,
               int64_t timeout_ms, const nb::object& keep) {
  auto operation = BeginOperation(keep);
  Operation& o = *operation;
  const PullOptions options{
      .timeout_ms = timeout_ms, .column = ColumnOf(column), .when_assigned = when_assigned};
  if (IsInt64(self)) {
    const auto out = OnePiece<int64_t>(self, {addresses, sizes});
    return Go(std::move(operation), false, [&] { return self.table->Pull(out, options); });
  }
  o.out = PiecesOf<float>({addresses, sizes});
  return Go(std::move(operation), false, [&] { return self.table->Pull(Pieces(o.out), options); });
}

PyPending PushPull(PyDense& self, const Numbers& addresses, const Numbers& sizes,
                   const Numbers& out_addresses, const Numbers& out_sizes, const HyperTuple& hyper,
                   double weight, bool weighted, const nb::bytes& mask, int op, int column,
                   double value_scale, int64_t timeout_ms, const nb::object& keep) {
  auto operation = BeginOperation(keep);
  Operation& o = *operation;
  auto options = OptionsOf<PushPullOptions>(o, self, hyper, weight, timeout_ms);
  options.weighted = weighted;
  SetMask(o, options, mask);
  SetOp(options, op, column);
  options.value_scale = value_scale;
  if (IsInt64(self)) {
    const auto values = OnePiece<const int64_t>(self, {addresses, sizes});
    const auto out = OnePiece<int64_t>(self, {out_addresses, out_sizes});
    return Go(std::move(operation), false, [&] { return self.table->PushPull(values, out, options); });
  }
  o.in = PiecesOf<const float>({addresses, sizes});
  o.out = PiecesOf<float>({out_addresses, out_sizes});
  return Go(std::move(operation), false,
            [&] { return self.table->PushPull(ConstPieces(o.in), Pieces(o.out), options); });
}

PyPending Done(PyDense& self, const HyperTuple& hyper, double weight, bool weighted, bool joined, int op,
               int column, int64_t timeout_ms) {
  auto operation = BeginOperation({});
  auto options = OptionsOf<DoneOptions>(*operation, self, hyper, weight, timeout_ms);
  options.weighted = weighted;
  SetOp(options, op, column);
  options.joined = joined;
  return Go(std::move(operation), false, [&] { return self.table->Done(options); });
}

void EndStep(PyDense& self, bool last) {
  RefuseInForkedChild();
  Check(self.table->EndStep({.last = last}));
}

PyPending DonePull(PyDense& self, const Numbers& out_addresses, const Numbers& out_sizes,
                   const HyperTuple& hyper, double weight, bool weighted, bool joined, int op, int column,
                   int64_t timeout_ms, const nb::object& keep) {
  auto operation = BeginOperation(keep);
  Operation& o = *operation;
  auto options = OptionsOf<DoneOptions>(o, self, hyper, weight, timeout_ms);
  options.weighted = weighted;
  SetOp(options, op, column);
  options.joined = joined;
  o.out = PiecesOf<float>({out_addresses, out_sizes});
  return Go(std::move(operation), false, [&] { return self.table->DonePull(Pieces(o.out), options); });
}

PyPending Contribute(PyDense& self, const Numbers& addresses, const Numbers& sizes, const HyperTuple& hyper,
                     double weight, bool weighted, const nb::bytes& mask, double value_scale, bool not_finite,
                     bool joined, int64_t timeout_ms, const nb::object& keep) {
  auto operation = BeginOperation(keep);
  Operation& o = *operation;
  auto options = OptionsOf<ContributeOptions>(o, self, hyper, weight, timeout_ms);
  options.weighted = weighted;
  SetMask(o, options, mask);
  options.value_scale = value_scale;
  options.not_finite = not_finite;
  options.joined = joined;
  o.in = PiecesOf<const float>({addresses, sizes});
  return Go(std::move(operation), false, [&] { return self.table->Contribute(ConstPieces(o.in), options); });
}

PyPending Decide(PyDense& self, const Numbers& out_addresses, const Numbers& out_sizes,
                 const HyperTuple& hyper, double weight, double scale, bool skip, bool joined,
                 int64_t timeout_ms, const nb::object& keep) {
  auto operation = BeginOperation(keep);
  Operation& o = *operation;
  auto options = OptionsOf<DecideOptions>(o, self, hyper, weight, timeout_ms);
  options.scale = scale;
  options.skip = skip;
  options.joined = joined;
  o.out = PiecesOf<float>({out_addresses, out_sizes});
  return Go(std::move(operation), false, [&] { return self.table->Decide(Pieces(o.out), options); });
}

}  // namespace

void BindDense(nb::module_& m) {
  const nb::bytes all("", 0);
  nb::class_<PyDense>(m, "DenseTable",
                      "An array on the servers. Arrays are given by address and size, in pieces.")
      .def_prop_ro("name", [](const PyDense& self) { return self.table->spec().name; })
      .def_prop_ro("size", [](const PyDense& self) { return self.table->size(); })
      .def("round", &RoundOf<PyDense>, "Sync: the round that this worker's next push takes part in.")
      .def("push", &Push, "addresses"_a, "sizes"_a, "hyper"_a = kDefaultHyper, nb::kw_only(),
           "weight"_a = 1.0, "weighted"_a = false, "mask"_a = all, "op"_a = 0, "column"_a = 0,
           "value_scale"_a = 1.0, "timeout_ms"_a = 0, "keep"_a = nb::none())
      .def("pull", &Pull, "addresses"_a, "sizes"_a, nb::kw_only(), "column"_a = 0, "when_assigned"_a = false,
           "timeout_ms"_a = 0, "keep"_a = nb::none())
      .def("push_pull", &PushPull, "addresses"_a, "sizes"_a, "out_addresses"_a, "out_sizes"_a,
           "hyper"_a = kDefaultHyper, nb::kw_only(), "weight"_a = 1.0, "weighted"_a = false, "mask"_a = all,
           "op"_a = 0, "column"_a = 0, "value_scale"_a = 1.0, "timeout_ms"_a = 0, "keep"_a = nb::none())
      .def("done", &Done, "hyper"_a = kDefaultHyper, nb::kw_only(), "weight"_a = 1.0, "weighted"_a = false,
           "joined"_a = false, "op"_a = 0, "column"_a = 0, "timeout_ms"_a = 0)
      .def("done_pull", &DonePull, "out_addresses"_a, "out_sizes"_a, "hyper"_a = kDefaultHyper, nb::kw_only(),
           "weight"_a = 1.0, "weighted"_a = false, "joined"_a = false, "op"_a = 0, "column"_a = 0,
           "timeout_ms"_a = 0, "keep"_a = nb::none())
      .def("end_step", &EndStep, nb::kw_only(), "last"_a = false,
           "Bounded: this worker's step is over, every push of it begun. Waits for nothing.")
      .def("contribute", &Contribute, "addresses"_a, "sizes"_a, "hyper"_a = kDefaultHyper, nb::kw_only(),
           "weight"_a = 1.0, "weighted"_a = false, "mask"_a = all, "value_scale"_a = 1.0,
           "not_finite"_a = false, "joined"_a = false, "timeout_ms"_a = 0, "keep"_a = nb::none())
      .def("decide", &Decide, "out_addresses"_a, "out_sizes"_a, "hyper"_a = kDefaultHyper, nb::kw_only(),
           "weight"_a = 1.0, "scale"_a = 1.0, "skip"_a = false, "joined"_a = false, "timeout_ms"_a = 0,
           "keep"_a = nb::none());
}

}  // namespace cairn::python
