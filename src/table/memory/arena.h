// Memory of one shard thread's tables: pieces cut from large mappings with huge pages, because a
// random read costs half as much there. Pieces go back to lists by size and are used again; a
// mapping is kept until the arena dies. Not thread-safe: the shard's thread alone uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace cairn::table {

class PageSupply;  // page_supply.h

class Arena {
 public:
  // Slabs and indexes take pieces of this size, and smaller ones while they are small.
  static constexpr size_t kChunkBytes = 32 * 1024;

  // With `pages`, which must outlive it, memory beyond the first piece is touched by their thread: the
  // one that uses the arena does not stand still for it.
  explicit Arena(PageSupply* pages = nullptr) : pages_(pages) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  // Requires that every piece has been given back.
  ~Arena();

  // At least `bytes` (> 0), 64-byte aligned, contents undefined. Throws std::bad_alloc.
  std::byte* Take(size_t bytes);
  // `bytes` as it was in Take.
  void Give(std::byte* piece, size_t bytes);
  // What a piece of `bytes` really takes: sizes are rounded up by less than a quarter.
  static size_t Rounded(size_t bytes);

  uint64_t used_bytes() const { return used_bytes_; }      // in pieces that are out
  uint64_t mapped_bytes() const { return mapped_bytes_; }  // from the system, touched or not

 private:
  struct Mapping {
    std::byte* base;
    size_t bytes;
  };
  std::byte* Cut(size_t rounded);
  Mapping NextMapping(size_t rounded);
  void KeepRest();

  PageSupply* const pages_;
  std::vector<Mapping> mappings_;
  std::byte* next_ = nullptr;  // the uncut rest of the newest mapping
  size_t left_ = 0;
  std::map<size_t, std::vector<std::byte*>> free_;  // by rounded size
  uint64_t used_bytes_ = 0;
  uint64_t mapped_bytes_ = 0;
};

}  // namespace cairn::table
