#include "rows.h"

#include <nanobind/stl/string.h>

#include <string>

#include "cairn/client.h"
#include "client/unique_keys.h"
#include "names.h"
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

}  // namespace

void BindRows(nb::module_& m) {
  m.def("unique", &Unique, "keys_address"_a, "key_count"_a, "unique_address"_a, "inverse_address"_a,
        "De-duplicates uint64 keys in the order of their first appearance; returns how many are left.\n"
        "`unique` has room for key_count, `inverse` is int64.");
  m.def("initial_rows", &Initial, "kind"_a, "a"_a, "b"_a, "seed"_a, "stream"_a, "keys_address"_a,
        "key_count"_a, "dim"_a, "out_address"_a, "storage"_a = "float32",
        "What the rows of a table of this init and storage hold before their first push.");
}

}  // namespace cairn::python
