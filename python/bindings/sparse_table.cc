#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "operation.h"
#include "raising.h"
#include "tables.h"
#include "waiting.h"

namespace cairn::python {
namespace nb = nanobind;
using nb::literals::operator""_a;
namespace {

constexpr uint64_t kMaxKeys = uint64_t{1} << 40;  // of a call: keeps the arithmetic on sizes exact

std::unique_ptr<Operation> Begin(const nb::object& keep, uint64_t key_count) {
  if (key_count > kMaxKeys)
    RaiseNamed("InvalidArgumentError", std::to_string(key_count) + " keys are too many");
  return BeginOperation(keep);
}

std::span<const RowKey> Keys(uint64_t address, uint64_t count) {
  return {reinterpret_cast<const RowKey*>(address), count};
}

template <class T>
std::span<T> Rows(const PySparse& self, uint64_t address, uint64_t count) {
  return {reinterpret_cast<T*>(address), count * self.table->dim()};
}

PyPending Push(PySparse& self, uint64_t keys_address, uint64_t key_count, uint64_t rows_address,
               const HyperTuple& hyper, double weight, bool weighted, uint64_t step, int op, int column,
               double value_scale, int64_t timeout_ms, const nb::object& keep) {
  auto operation = Begin(keep, key_count);
  auto options = OptionsOf<PushOptions>(*operation, self, hyper, weight, timeout_ms, step);
  options.weighted = weighted;
  options.op = OpOf(op);
  options.column = ColumnOf(column);
  options.value_scale = value_scale;
  const auto keys = Keys(keys_address, key_count);
  return Go(std::move(operation), IsAsync(self), [&] {
    return IsInt64(self) ? self.table->Push(keys, Rows<const int64_t>(self, rows_address, key_count), options)
                         : self.table->Push(keys, Rows<const float>(self, rows_address, key_count), options);
  });
}

PyPending Pull(PySparse& self, uint64_t keys_address, uint64_t key_count, uint64_t out_address, int column,
               int64_t timeout_ms, const nb::object& keep) {
  auto operation = Begin(keep, key_count);
  const PullOptions options{.timeout_ms = timeout_ms, .column = ColumnOf(column)};
  const auto keys = Keys(keys_address, key_count);
  return Go(std::move(operation), false, [&] {
    return IsInt64(self) ? self.table->Pull(keys, Rows<int64_t>(self, out_address, key_count), options)
                         : self.table->Pull(keys, Rows<float>(self, out_address, key_count), options);
  });
}

PyPending PushPull(PySparse& self, uint64_t keys_address, uint64_t key_count, uint64_t rows_address,
                   uint64_t out_address, const HyperTuple& hyper, double weight, bool weighted, uint64_t step,
                   double value_scale, int64_t timeout_ms, const nb::object& keep) {
  auto operation = Begin(keep, key_count);
  auto options = OptionsOf<PushPullOptions>(*operation, self, hyper, weight, timeout_ms, step);
  options.weighted = weighted;
  options.value_scale = value_scale;
  const auto keys = Keys(keys_address, key_count);
  return Go(std::move(operation), false, [&] {
    return IsInt64(self) ? self.table->PushPull(keys, Rows<const int64_t>(self, rows_address, key_count),
                                                Rows<int64_t>(self, out_address, key_count), options)
                         : self.table->PushPull(keys, Rows<const float>(self, rows_address, key_count),
                                                Rows<float>(self, out_address, key_count), options);
  });
}

PyPending Done(PySparse& self, const HyperTuple& hyper, double weight, bool weighted, uint64_t step,
               bool joined, int64_t timeout_ms) {
  auto operation = Begin({}, 0);
  auto options = OptionsOf<DoneOptions>(*operation, self, hyper, weight, timeout_ms, step);
  options.weighted = weighted;
  options.joined = joined;
  return Go(std::move(operation), false, [&] { return self.table->Done(options); });
}

PyPending Contribute(PySparse& self, uint64_t keys_address, uint64_t key_count, uint64_t rows_address,
                     const HyperTuple& hyper, double weight, bool weighted, uint64_t step, double value_scale,
                     bool not_finite, bool joined, int64_t timeout_ms, const nb::object& keep) {
  auto operation = Begin(keep, key_count);
  auto options = OptionsOf<ContributeOptions>(*operation, self, hyper, weight, timeout_ms, step);
  options.weighted = weighted;
  options.value_scale = value_scale;
  options.not_finite = not_finite;
  options.joined = joined;
  const auto keys = Keys(keys_address, key_count);
  return Go(std::move(operation), false, [&] {
    return self.table->Contribute(keys, Rows<const float>(self, rows_address, key_count), options);
  });
}

PyPending Decide(PySparse& self, const HyperTuple& hyper, double weight, uint64_t step, double scale,
                 bool skip, bool joined, int64_t timeout_ms, const nb::object& keep) {
  auto operation = Begin(keep, 0);
  auto options = OptionsOf<DecideOptions>(*operation, self, hyper, weight, timeout_ms, step);
  options.scale = scale;
  options.skip = skip;
  options.joined = joined;
  return Go(std::move(operation), false, [&] { return self.table->Decide(options); });
}

void EndStep(PySparse& self, bool last) {
  RefuseInForkedChild();
  Check(self.table->EndStep({.last = last}));
}

nb::bytes AllKeys(PySparse& self, int64_t timeout_ms) {
  RefuseInForkedChild();
  auto keys = std::make_shared<std::vector<RowKey>>();
  Check(BlockingCall::Start([table = *self.table, keys, timeout_ms]() mutable {
          Result<std::vector<RowKey>> all = table.Keys({.timeout_ms = timeout_ms});
          if (!all.ok()) return all.status();
          *keys = std::move(all).value();
          return Status::Ok();
        })->Wait());
  return nb::bytes(keys->data(), keys->size() * sizeof(RowKey));
}

}  // namespace

void BindSparse(nb::module_& m) {
  nb::class_<PySparse>(m, "SparseTable", "Rows on the servers, by key.")
      .def_prop_ro("name", [](const PySparse& self) { return self.table->spec().name; })
      .def_prop_ro("dim", [](const PySparse& self) { return self.table->dim(); })
      .def("round", &RoundOf<PySparse>, "Sync: the round that this worker's next push takes part in.")
      .def("push", &Push, "keys_address"_a, "key_count"_a, "rows_address"_a, "hyper"_a = kDefaultHyper,
           nb::kw_only(), "weight"_a = 1.0, "weighted"_a = false, "step"_a = 0, "op"_a = 0, "column"_a = 0,
           "value_scale"_a = 1.0, "timeout_ms"_a = 0, "keep"_a = nb::none())
      .def("pull", &Pull, "keys_address"_a, "key_count"_a, "out_address"_a, nb::kw_only(), "column"_a = 0,
           "timeout_ms"_a = 0, "keep"_a = nb::none())
      .def("push_pull", &PushPull, "keys_address"_a, "key_count"_a, "rows_address"_a, "out_address"_a,
           "hyper"_a = kDefaultHyper, nb::kw_only(), "weight"_a = 1.0, "weighted"_a = false, "step"_a = 0,
           "value_scale"_a = 1.0, "timeout_ms"_a = 0, "keep"_a = nb::none())
      .def("done", &Done, "hyper"_a = kDefaultHyper, nb::kw_only(), "weight"_a = 1.0, "weighted"_a = false,
           "step"_a = 0, "joined"_a = false, "timeout_ms"_a = 0)
      .def("end_step", &EndStep, nb::kw_only(), "last"_a = false,
           "Bounded: this worker's step is over, every push of it begun. Waits for nothing.")
      .def("contribute", &Contribute, "keys_address"_a, "key_count"_a, "rows_address"_a,
           "hyper"_a = kDefaultHyper, nb::kw_only(), "weight"_a = 1.0, "weighted"_a = false, "step"_a = 0,
           "value_scale"_a = 1.0, "not_finite"_a = false, "joined"_a = false, "timeout_ms"_a = 0,
           "keep"_a = nb::none())
      .def("decide", &Decide, "hyper"_a = kDefaultHyper, nb::kw_only(), "weight"_a = 1.0, "step"_a = 0,
           "scale"_a = 1.0, "skip"_a = false, "joined"_a = false, "timeout_ms"_a = 0, "keep"_a = nb::none())
      .def("keys", &AllKeys, nb::kw_only(), "timeout_ms"_a = 0,
           "The keys of all rows that exist: uint64, one after the other.");
}

}  // namespace cairn::python
