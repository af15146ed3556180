// CachedRows: the public face of RowCache over a SparseTable.
#include "cairn/cached_rows.h"

#include <string>
#include <utility>
#include <vector>

#include "client/cache/row_cache.h"

namespace cairn {
using client::RowCache;

CachedRows::CachedRows(SparseTable table, std::unique_ptr<RowCache> cache)
    : table_(std::move(table)), cache_(std::move(cache)) {}
CachedRows::CachedRows(CachedRows&&) noexcept = default;
CachedRows& CachedRows::operator=(CachedRows&&) noexcept = default;
CachedRows::~CachedRows() = default;

Result<CachedRows> CachedRows::Make(SparseTable table, const Options& options) {
  const std::string named = "table \"" + table.spec().name + "\"";
  if (table.spec().mode == Mode::kSync)
    return {Code::kInvalidArgument,
            named + " is synchronous: its pulls give the values after the last round, which a cache can't"};
  if (table.spec().element != ElementType::kFloat32)
    return {Code::kInvalidArgument, named + " holds int64: only rows of float32 can be cached"};
  auto cache = std::make_unique<RowCache>(
      RowCache::Options{.rows = options.rows, .dim = table.dim(), .steps = options.steps});
  return CachedRows(std::move(table), std::move(cache));
}

Status CachedRows::Pull(std::span<const RowKey> keys, std::span<float> out, int64_t timeout_ms) {
  if (out.size() != keys.size() * table_.dim())
    return {Code::kInvalidArgument, "table \"" + table_.spec().name + "\" has dim " +
                                        std::to_string(table_.dim()) + ": " + std::to_string(keys.size()) +
                                        " keys need room for as many rows, not for " +
                                        std::to_string(out.size()) + " floats"};
  std::vector<int64_t> missing(keys.size());
  const RowCache::Ticket ticket = cache_->ticket();
  missing.resize(cache_->Take(keys, out, missing));
  if (missing.empty()) return Status::Ok();
  std::vector<RowKey> wanted;
  wanted.reserve(missing.size());
  for (int64_t place : missing) wanted.push_back(keys[static_cast<size_t>(place)]);
  std::vector<float> rows(wanted.size() * table_.dim());
  if (Status failed = table_.Pull(wanted, rows, {.timeout_ms = timeout_ms}).Wait(); !failed.ok())
    return failed;
  cache_->Give(ticket, keys, missing, rows, out);
  return Status::Ok();
}

void CachedRows::Step() { cache_->Step(); }
void CachedRows::Clear() { cache_->Clear(); }

CachedRows::Stats CachedRows::stats() const {
  const RowCache::Stats stats = cache_->stats();
  return {stats.hits, stats.misses, stats.rows, stats.bytes};
}

}  // namespace cairn
