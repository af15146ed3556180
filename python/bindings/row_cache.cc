// cairn._core.RowCache: src/client/cache/row_cache.h, under the GIL (it is not thread-safe).
#include "client/cache/row_cache.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>

#include <utility>

#include "raising.h"
#include "rows.h"

namespace cairn::python {
namespace nb = nanobind;
using nb::literals::operator""_a;
namespace {

using client::RowCache;
using PyTicket = std::pair<uint32_t, uint64_t>;

class PyRowCache {
 public:
  PyRowCache(uint64_t rows, uint32_t dim, uint32_t steps)
      : dim_(dim), cache_({.rows = rows, .dim = dim, .steps = steps}) {}

  std::pair<uint64_t, PyTicket> Take(uint64_t keys, uint64_t count, uint64_t out, uint64_t missing,
                                     uint32_t ahead) {
    RowCache::Ticket oldest;
    const uint64_t left = cache_.Take(At<const RowKey>(keys, count), At<float>(out, count * dim_),
                                      At<int64_t>(missing, count), ahead, &oldest);
    return {left, {oldest.step, oldest.generation}};
  }
  void Give(const PyTicket& ticket, uint64_t keys, uint64_t count, uint64_t missing, uint64_t missing_count,
            uint64_t rows, uint64_t out) {
    cache_.Give({ticket.first, ticket.second}, At<const RowKey>(keys, count),
                At<const int64_t>(missing, missing_count), At<const float>(rows, missing_count * dim_),
                At<float>(out, count * dim_));
  }
  PyTicket ticket() const { return {cache_.ticket().step, cache_.ticket().generation}; }
  bool Fresh(const PyTicket& ticket) const { return cache_.Fresh({ticket.first, ticket.second}); }
  void Step() { cache_.Step(); }
  void Clear() { cache_.Clear(); }
  nb::dict stats() const {
    const RowCache::Stats stats = cache_.stats();
    nb::dict named;
    named["hits"] = stats.hits;
    named["misses"] = stats.misses;
    named["admitted"] = stats.admitted;
    named["evicted"] = stats.evicted;
    named["rows"] = stats.rows;
    named["capacity"] = stats.capacity;
    named["bytes"] = stats.bytes;
    return named;
  }

 private:
  template <class T>
  static std::span<T> At(uint64_t address, uint64_t count) {
    return {reinterpret_cast<T*>(address), count};
  }
  const uint64_t dim_;
  RowCache cache_;
};

}  // namespace

void BindRowCache(nb::module_& m) {
  nb::class_<PyRowCache>(m, "RowCache", "Rows that were read a bounded number of steps ago.")
      .def(nb::init<uint64_t, uint32_t, uint32_t>(), "rows"_a, "dim"_a, "steps"_a)
      .def("take", &PyRowCache::Take, "keys_address"_a, "key_count"_a, "out_address"_a, "missing_address"_a,
           "ahead"_a = 0,
           "Copies what may be served after `ahead` more steps to its place; the places of the others go to\n"
           "`missing` (int64, room for all); returns how many those are, and the ticket of the oldest row.")
      .def("give", &PyRowCache::Give, "ticket"_a, "keys_address"_a, "key_count"_a, "missing_address"_a,
           "missing_count"_a, "rows_address"_a, "out_address"_a,
           "What a read that began with this ticket has brought for the places of `missing`.")
      .def("ticket", &PyRowCache::ticket, "Of a read that begins now.")
      .def("fresh", &PyRowCache::Fresh, "ticket"_a, "What was read then may still be served.")
      .def("step", &PyRowCache::Step, "This worker has ended a step.")
      .def("clear", &PyRowCache::Clear, "Nothing that was read before may be served any more.")
      .def("stats", &PyRowCache::stats);
}

}  // namespace cairn::python
