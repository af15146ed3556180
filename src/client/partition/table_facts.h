// What a table's spec means for the requests that are about it; and how its mistakes begin. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "cairn/status.h"
#include "cairn/types.h"
#include "wire/cluster_state.h"

namespace cairn::client {

inline size_t ElementBytes(const TableSpec& spec) {
  return spec.element == ElementType::kFloat32 ? sizeof(float) : sizeof(int64_t);
}
inline bool ChecksFinite(const TableSpec& spec) {
  return spec.element == ElementType::kFloat32 && spec.non_finite == NonFinitePolicy::kReject;
}
// Segments of a dense table: at least one.
inline size_t SegmentCount(const TableSpec& spec) { return spec.segments.empty() ? 1 : spec.segments.size(); }
// "table "w"", and a mistake of the caller's.
inline std::string Named(const wire::TableInfo& table) { return "table \"" + table.spec.name + "\""; }
inline Status Wrong(std::string text) { return {Code::kInvalidArgument, std::move(text)}; }

}  // namespace cairn::client
