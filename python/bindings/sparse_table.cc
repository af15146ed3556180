#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "operation.h"
#include "raising.h"
#include "tables.h"
#include "waiting.h"

namespace cairn::python {
namespace nb = nanobind;
using nb::literals::operator""_a;
namespace {

constexpr uint64_t kMaxKeys = uint64_t{1} << 40;  // of a call: keeps the arithmetic on sizes exact

bool IsInt64(const PySparse& self) { return self.table->spec().element == ElementType::kInt64; }
bool IsAsync(const PySparse& self) { return self.table->spec().mode == Mode::kAsync; }

std::unique_ptr<Operation> Begin(const nb::object& keep, uint64_t key_count) {
  RefuseInForkedChild();
  SweepDropped();
  if (key_count > kMaxKeys)
    RaiseNamed("InvalidArgumentError", std::to_string(key_count) + " keys are too many");
  auto operation = std::make_unique<Operation>();
  operation->keep = keep;
  return operation;
}

PushOptions Options(Operation& operation, const PySparse& self, const HyperTuple& hyper, double weight,
                    int64_t timeout_ms) {
  PushOptions options;
  options.hyper = HyperOf(hyper);
  options.weight = weight;
  options.timeout_ms = timeout_ms;
  if (!IsAsync(self)) options.info = &operation.info;
  return options;
}

std::span<const RowKey> Keys(uint64_t address, uint64_t count) {
  return {reinterpret_cast<const RowKey*>(address), count};
}

template <class T>
std::span<T> Rows(const PySparse& self, uint64_t address, uint64_t count) {
  return {reinterpret_cast<T*>(address), count * self.table->dim()};
}

template <class Call>
PyPending Go(std::unique_ptr<Operation> operation, bool detached, Call call) {
  {
    nb::gil_scoped_release released;
    operation->pending = call();
  }
  RaiseIfSet();
  return PyPending(std::move(operation), detached);
}

PyPending Push(PySparse& self, uint64_t keys_address, uint64_t key_count, uint64_t rows_address,
               const HyperTuple& hyper, double weight, int64_t timeout_ms, const nb::object& keep) {
  auto operation = Begin(keep, key_count);
  const PushOptions options = Options(*operation, self, hyper, weight, timeout_ms);
  const auto keys = Keys(keys_address, key_count);
  return Go(std::move(operation), IsAsync(self), [&] {
    return IsInt64(self) ? self.table->Push(keys, Rows<const int64_t>(self, rows_address, key_count), options)
                         : self.table->Push(keys, Rows<const float>(self, rows_address, key_count), options);
  });
}

PyPending Pull(PySparse& self, uint64_t keys_address, uint64_t key_count, uint64_t out_address,
               int64_t timeout_ms, const nb::object& keep) {
  auto operation = Begin(keep, key_count);
  const PullOptions options{.timeout_ms = timeout_ms};
  const auto keys = Keys(keys_address, key_count);
  return Go(std::move(operation), false, [&] {
    return IsInt64(self) ? self.table->Pull(keys, Rows<int64_t>(self, out_address, key_count), options)
                         : self.table->Pull(keys, Rows<float>(self, out_address, key_count), options);
  });
}

PyPending PushPull(PySparse& self, uint64_t keys_address, uint64_t key_count, uint64_t rows_address,
                   uint64_t out_address, const HyperTuple& hyper, double weight, int64_t timeout_ms,
                   const nb::object& keep) {
  auto operation = Begin(keep, key_count);
  const PushOptions options = Options(*operation, self, hyper, weight, timeout_ms);
  const auto keys = Keys(keys_address, key_count);
  return Go(std::move(operation), false, [&] {
    return IsInt64(self) ? self.table->PushPull(keys, Rows<const int64_t>(self, rows_address, key_count),
                                                Rows<int64_t>(self, out_address, key_count), options)
                         : self.table->PushPull(keys, Rows<const float>(self, rows_address, key_count),
                                                Rows<float>(self, out_address, key_count), options);
  });
}

PyPending Done(PySparse& self, const HyperTuple& hyper, double weight, int64_t timeout_ms) {
  auto operation = Begin({}, 0);
  const PushOptions options = Options(*operation, self, hyper, weight, timeout_ms);
  return Go(std::move(operation), false, [&] { return self.table->Done(options); });
}

uint64_t Round(PySparse& self) {
  RefuseInForkedChild();
  Result<uint64_t> round(0);
  {
    nb::gil_scoped_release released;
    round = self.table->round();
  }
  return Take(std::move(round));
}

}  // namespace

void BindSparse(nb::module_& m) {
  nb::class_<PySparse>(m, "SparseTable", "Rows on the servers, by key.")
      .def_prop_ro("name", [](const PySparse& self) { return self.table->spec().name; })
      .def_prop_ro("dim", [](const PySparse& self) { return self.table->dim(); })
      .def("round", &Round, "Sync: the round that this worker's next push takes part in.")
      .def("push", &Push, "keys_address"_a, "key_count"_a, "rows_address"_a, "hyper"_a = kDefaultHyper,
           nb::kw_only(), "weight"_a = 1.0, "timeout_ms"_a = 0, "keep"_a = nb::none())
      .def("pull", &Pull, "keys_address"_a, "key_count"_a, "out_address"_a, nb::kw_only(), "timeout_ms"_a = 0,
           "keep"_a = nb::none())
      .def("push_pull", &PushPull, "keys_address"_a, "key_count"_a, "rows_address"_a, "out_address"_a,
           "hyper"_a = kDefaultHyper, nb::kw_only(), "weight"_a = 1.0, "timeout_ms"_a = 0,
           "keep"_a = nb::none())
      .def("done", &Done, "hyper"_a = kDefaultHyper, nb::kw_only(), "weight"_a = 1.0, "timeout_ms"_a = 0);
}

}  // namespace cairn::python
