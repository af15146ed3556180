// Rows of an async sparse table through a cache in this worker: a row may be used for a bounded number
// of steps after it was read. docs/internals/consistency.md, "Cached rows", says exactly what that means.
//
//   auto rows = cairn::CachedRows::Make(table, {.rows = 100'000, .steps = 8}).value();
//   while (more) {
//     CHECK(rows.Pull(keys, values).ok());     // hot rows from here, the others from the servers
//     CHECK(table.Push(keys, gradients, {.hyper = {.lr = 0.1f}}).Wait().ok());
//     rows.Step();
//   }
//
// A push does nothing to what is cached. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "cairn/client.h"
#include "cairn/status.h"
#include "cairn/types.h"

namespace cairn {

namespace client {
class RowCache;
}

class CachedRows {
 public:
  struct Options {
    uint64_t rows = 0;   // kept at most: those that are read more than once
    uint32_t steps = 0;  // a row is used for so many steps after the one it was read in
  };
  struct Stats {
    uint64_t hits = 0, misses = 0;  // rows asked for
    uint64_t rows = 0, bytes = 0;   // held now; all memory of the cache
  };

  // kInvalidArgument for a sync table, whose pulls are never stale, and for one of int64.
  static Result<CachedRows> Make(SparseTable table, const Options& options);
  CachedRows(CachedRows&&) noexcept;
  CachedRows& operator=(CachedRows&&) noexcept;
  ~CachedRows();

  // As SparseTable::Pull of column 0, and waits for it. After an error `out` holds anything.
  Status Pull(std::span<const RowKey> keys, std::span<float> out, int64_t timeout_ms = 0);
  void Step();   // this worker has ended a step: everything is one step older
  void Clear();  // what is pulled from now on is read anew
  Stats stats() const;

 private:
  CachedRows(SparseTable table, std::unique_ptr<client::RowCache> cache);
  SparseTable table_;
  std::unique_ptr<client::RowCache> cache_;
};

}  // namespace cairn
