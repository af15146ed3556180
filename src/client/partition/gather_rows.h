// Rows by place, for embedding modules: a forward pass gathers the unique rows for its ids, a backward
// pass adds the gradients of equal ids up. unique_keys.h says which places. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cairn::client {

// out row i = rows row places[i]. Requires out.size() == places.size() * dim, and false is returned, with
// nothing written, if a place is not below rows.size() / dim.
[[nodiscard]] bool GatherRows(std::span<const float> rows, size_t dim, std::span<const int64_t> places,
                              std::span<float> out);

// sums row places[i] += rows row i, one after the other and never fused: the bits of torch's index_add_.
// Requires rows.size() == places.size() * dim; false as above.
[[nodiscard]] bool AddRows(std::span<const float> rows, size_t dim, std::span<const int64_t> places,
                           std::span<float> sums);

}  // namespace cairn::client
