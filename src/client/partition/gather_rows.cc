#include "client/partition/gather_rows.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace cairn::client {
namespace {

// Written out so that builds without the vectoriser are as fast; loads of any alignment.
using FloatLanes = float __attribute__((vector_size(32)));
constexpr size_t kFloatLanes = sizeof(FloatLanes) / sizeof(float);
constexpr size_t kAhead = 8;  // rows that are fetched before their turn

bool AllBelow(std::span<const int64_t> places, size_t end) {
  uint64_t largest = 0;  // a negative place is a very large one
  for (int64_t place : places) largest = std::max(largest, static_cast<uint64_t>(place));
  return places.empty() || largest < end;
}

void AddRow(float* to, const float* from, size_t dim) {
  size_t d = 0;
  for (; d + kFloatLanes <= dim; d += kFloatLanes) {
    FloatLanes sum, more;
    std::memcpy(&sum, to + d, sizeof(sum));
    std::memcpy(&more, from + d, sizeof(more));
    sum += more;
    std::memcpy(to + d, &sum, sizeof(sum));
  }
  for (; d < dim; ++d) to[d] += from[d];
}

// For every i the row at places[i], with those to come on their way.
template <class Visit>
void ForEachPlace(std::span<const int64_t> places, const float* rows, size_t dim, Visit visit) {
  const size_t count = places.size();
  for (size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) __builtin_prefetch(rows + static_cast<size_t>(places[i + kAhead]) * dim);
    visit(i, static_cast<size_t>(places[i]) * dim);
  }
}

}  // namespace

bool GatherRows(std::span<const float> rows, size_t dim, std::span<const int64_t> places,
                std::span<float> out) {
  CAIRN_CHECK(dim > 0 && out.size() == places.size() * dim);
  if (!AllBelow(places, rows.size() / dim)) return false;
  const size_t bytes = dim * sizeof(float);
  float* to = out.data();
  ForEachPlace(places, rows.data(), dim,
               [&](size_t i, size_t at) { std::memcpy(to + i * dim, rows.data() + at, bytes); });
  return true;
}

bool AddRows(std::span<const float> rows, size_t dim, std::span<const int64_t> places,
             std::span<float> sums) {
  CAIRN_CHECK(dim > 0 && rows.size() == places.size() * dim);
  if (!AllBelow(places, sums.size() / dim)) return false;
  ForEachPlace(places, sums.data(), dim,
               [&](size_t i, size_t at) { AddRow(sums.data() + at, rows.data() + i * dim, dim); });
  return true;
}

}  // namespace cairn::client
