// The bytes of the scheduler's log: records one after the other, each a header of 16 bytes and a
// payload. Pure functions over bytes; local_log.cc writes them.
//
//   uint32 length of the payload        little-endian, like everything here
//   uint32 low half of XXH3-64 over the length and the payload's checksum
//   uint64 XXH3-64 of the payload
//   payload
//
// A crash can tear the last append only: nothing valid comes after a torn record. So a bad record
// with a valid one anywhere behind it is damage, and never cut off silently. The first record is
// written aside and renamed into place, so it can't be torn either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/status.h"

namespace cairn::scheduler {

inline constexpr size_t kLogHeaderBytes = 16;
// A state of 65,536 slots and 100,000 nodes takes some 10 MiB.
inline constexpr size_t kMaxLogRecordBytes = size_t{64} << 20;

// Header and payload. Requires payload.size() <= kMaxLogRecordBytes.
std::vector<std::byte> EncodeLogRecord(std::span<const std::byte> payload);

struct ParsedLog {
  std::vector<std::span<const std::byte>> payloads;  // views into the parsed bytes
  size_t good_bytes = 0;                             // up to here everything is whole
  size_t torn_bytes = 0;                             // behind it: the rest of a torn append
};
// The error names the offset of the damage.
Result<ParsedLog> ParseLog(std::span<const std::byte> bytes);

}  // namespace cairn::scheduler
