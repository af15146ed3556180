// Open addressing over places: a cell is 4 bytes and holds no key (it lies in `unique`), so that
// the table of a usual batch fits the second cache. Keys are hashed some ahead of their turn, and
// their cells fetched meanwhile.
#include "client/partition/unique_keys.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "base/check.h"
#include "base/random.h"

namespace cairn::client {
namespace {

constexpr size_t kKeysAhead = 16;
// What a thread keeps for its next call; larger tables are given back.
constexpr size_t kKeptCells = size_t{1} << 20;

}  // namespace

size_t UniqueKeys(std::span<const RowKey> keys, std::span<RowKey> unique, std::span<int64_t> inverse) {
  CAIRN_CHECK(keys.size() <= kMaxUniqueKeys);
  CAIRN_CHECK(unique.size() == keys.size() && inverse.size() == keys.size());
  thread_local std::vector<uint32_t> cells;  // a place + 1; 0: empty
  const size_t size = std::bit_ceil(std::max<size_t>(keys.size() * 2, 64));
  const size_t mask = size - 1;
  cells.assign(size, 0);
  uint32_t* const table = cells.data();
  size_t hashes[kKeysAhead];
  const auto look_ahead = [&](size_t i) {
    const size_t at = Mix64(keys[i]) & mask;
    hashes[i % kKeysAhead] = at;
    __builtin_prefetch(table + at, 1);
  };
  for (size_t i = 0; i < std::min(kKeysAhead, keys.size()); ++i) look_ahead(i);
  uint32_t count = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    const RowKey key = keys[i];
    size_t at = hashes[i % kKeysAhead];
    if (i + kKeysAhead < keys.size()) look_ahead(i + kKeysAhead);
    while (table[at] != 0 && unique[table[at] - 1] != key) at = (at + 1) & mask;
    if (table[at] == 0) {
      unique[count] = key;
      table[at] = ++count;
    }
    inverse[i] = table[at] - 1;
  }
  if (size > kKeptCells) cells = {};
  return count;
}

}  // namespace cairn::client
