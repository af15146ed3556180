#include "rows.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "cairn/client.h"
#include "client/partition/gather_rows.h"
#include "client/partition/unique_keys.h"
#include "names.h"
#include "optimizer/span_ops.h"
#include "raising.h"

namespace cairn::python {
namespace nb = nanobind;
using nb::literals::operator""_a;
namespace {

uint64_t Unique(uint64_t keys_address, uint64_t key_count, uint64_t unique_address,
                uint64_t inverse_address) {
  if (key_count > client::kMaxUniqueKeys)
    RaiseNamed("InvalidArgumentError", std::to_string(key_count) +
                                           " keys are too many for one call: at most " +
                                           std::to_string(client::kMaxUniqueKeys));
  nb::gil_scoped_release released;
  return client::UniqueKeys({reinterpret_cast<const RowKey*>(keys_address), key_count},
                            {reinterpret_cast<RowKey*>(unique_address), key_count},
                            {reinterpret_cast<int64_t*>(inverse_address), key_count});
}

void Initial(const std::string& kind, double a, double b, uint64_t seed, uint64_t stream,
             uint64_t keys_address, uint64_t key_count, uint32_t dim, uint64_t out_address,
             const std::string& storage) {
  const Storage kept = StorageOf(storage);
  const Init init{InitKindOf(kind), static_cast<float>(a), static_cast<float>(b), seed, stream};
  const bool random = init.kind == InitKind::kUniform || init.kind == InitKind::kNormal;
  if (random && stream == 0)
    RaiseNamed("InvalidArgumentError",
               "rows of stream 0 depend on the number of their table, which only the servers know: give "
               "the table and this call the same stream above 0");
  nb::gil_scoped_release released;
  InitialRows(init, {reinterpret_cast<const RowKey*>(keys_address), key_count}, dim,
              {reinterpret_cast<float*>(out_address), key_count * dim}, kept);
}

template <class T>
std::span<T> At(uint64_t address, uint64_t count) {
  return {reinterpret_cast<T*>(address), count};
}

void CheckPlaces(bool all_there, uint64_t row_count) {
  if (!all_there)
    RaiseNamed("InvalidArgumentError", "a place is not among the " + std::to_string(row_count) + " rows");
}

void Gather(uint64_t rows_address, uint64_t row_count, uint32_t dim, uint64_t places_address, uint64_t count,
            uint64_t out_address) {
  bool all_there = false;
  {
    nb::gil_scoped_release released;
    all_there =
        client::GatherRows(At<const float>(rows_address, row_count * dim), dim,
                           At<const int64_t>(places_address, count), At<float>(out_address, count * dim));
  }
  CheckPlaces(all_there, row_count);
}

void Add(uint64_t rows_address, uint64_t count, uint32_t dim, uint64_t places_address, uint64_t sums_address,
         uint64_t sum_count) {
  bool all_there = false;
  {
    nb::gil_scoped_release released;
    all_there =
        client::AddRows(At<const float>(rows_address, count * dim), dim,
                        At<const int64_t>(places_address, count), At<float>(sums_address, sum_count * dim));
  }
  CheckPlaces(all_there, sum_count);
}

bool AllFinite(const std::vector<uint64_t>& addresses, const std::vector<uint64_t>& sizes) {
  if (addresses.size() != sizes.size())
    RaiseNamed("InvalidArgumentError", "as many sizes as addresses are wanted");
  nb::gil_scoped_release released;
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (!optimizer::AllFinite(At<const float>(addresses[i], sizes[i]))) return false;
  }
  return true;
}

}  // namespace

void BindRows(nb::module_& m) {
  m.def("unique", &Unique, "keys_address"_a, "key_count"_a, "unique_address"_a, "inverse_address"_a,
        "De-duplicates uint64 keys in the order of their first appearance; returns how many are left.\n"
        "`unique` has room for key_count, `inverse` is int64.");
  m.def("initial_rows", &Initial, "kind"_a, "a"_a, "b"_a, "seed"_a, "stream"_a, "keys_address"_a,
        "key_count"_a, "dim"_a, "out_address"_a, "storage"_a = "float32",
        "What the rows of a table of this init and storage hold before their first push.");
  m.def("gather_rows", &Gather, "rows_address"_a, "row_count"_a, "dim"_a, "places_address"_a, "count"_a,
        "out_address"_a, "out row i = row places[i] (float32, int64 places).");
  m.def("add_rows", &Add, "rows_address"_a, "count"_a, "dim"_a, "places_address"_a, "sums_address"_a,
        "sum_count"_a, "sums row places[i] += row i, in order (float32, int64 places).");
  m.def("all_finite", &AllFinite, "addresses"_a, "sizes"_a,
        "No NaN and no infinity in these float32 arrays.");
}

}  // namespace cairn::python
