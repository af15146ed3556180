// What a shard is told once, when it is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "server/slots/shard_bounds.h"
#include "wire/frame.h"

namespace cairn::table {
class PageSupply;
}

namespace cairn::server {

struct ShardOptions {
  uint32_t thread = 0;
  std::string name;                                        // "server 0 thread 1", for messages
  uint64_t early_contribution_budget = uint64_t{1} << 30;  // deterministic: bytes kept for their turn
  uint32_t refusals_kept = 1024;  // per client and slot; a client has no more in flight
  int64_t still_waiting_us = 3'000'000;
  int64_t held_waiting_us = 1'000'000;  // the same for answers that are held; clients resend after 3 s
  // Of the values of one answer; leaves room for header and entries.
  uint64_t most_value_bytes = wire::kMaxBodyBytes - (uint64_t{2} << 20);
  // Replication.
  int64_t resend_after_us = 3'000'000;   // a stream without a confirmation for so long is made anew
  int64_t slow_after_us = 10'000'000;    // a backup that has not confirmed for so long is reported
  size_t copy_chunk_bytes = 256 * 1024;  // a slot is copied in pieces of this size
  int64_t hash_every_us = 5'000'000;     // between two comparisons with the backups
  uint64_t most_unconfirmed_bytes = uint64_t{256} << 20;  // per stream; beyond it pushes have to wait
  ShardBounds bounds;
  std::function<void(const std::string&)> log;  // what users must know; may be empty
  table::PageSupply* pages = nullptr;           // touches memory before tables grow; outlives the shard
};

}  // namespace cairn::server
