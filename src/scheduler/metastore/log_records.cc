#include "scheduler/metastore/log_records.h"

#include <xxhash.h>

#include <cstring>
#include <optional>
#include <string>

#include "base/check.h"
#include "base/planted.h"

namespace cairn::scheduler {
namespace {

// Our machines are little-endian (the wire format says so too); the static_assert keeps it honest.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

struct RecordHeader {
  uint32_t length = 0;
  uint32_t header_check = 0;
  uint64_t payload_checksum = 0;
};
static_assert(sizeof(RecordHeader) == kLogHeaderBytes);

uint32_t HeaderCheck(uint32_t length, uint64_t payload_checksum) {
  std::byte covered[12];
  std::memcpy(covered, &length, 4);
  std::memcpy(covered + 4, &payload_checksum, 8);
  return static_cast<uint32_t>(XXH3_64bits(covered, sizeof covered));
}

// The payload of the whole, valid record that begins at `offset`, if there is one.
std::optional<std::span<const std::byte>> RecordAt(std::span<const std::byte> bytes, size_t offset) {
  if (bytes.size() - offset < kLogHeaderBytes) return std::nullopt;
  RecordHeader header;
  std::memcpy(&header, bytes.data() + offset, sizeof header);
  if (header.length > kMaxLogRecordBytes) return std::nullopt;
  if (header.length > bytes.size() - offset - kLogHeaderBytes) return std::nullopt;
  if (header.header_check != HeaderCheck(header.length, header.payload_checksum)) return std::nullopt;
  std::span<const std::byte> payload = bytes.subspan(offset + kLogHeaderBytes, header.length);
  const bool whole = XXH3_64bits(payload.data(), payload.size()) == header.payload_checksum;
  if (!whole && !CAIRN_BUG(kTornRecordBelieved)) return std::nullopt;
  return payload;
}

std::optional<size_t> NextValidRecord(std::span<const std::byte> bytes, size_t from) {
  for (size_t offset = from; offset + kLogHeaderBytes <= bytes.size(); ++offset)
    if (RecordAt(bytes, offset)) return offset;
  return std::nullopt;
}

}  // namespace

std::vector<std::byte> EncodeLogRecord(std::span<const std::byte> payload) {
  CAIRN_CHECK(payload.size() <= kMaxLogRecordBytes);
  RecordHeader header;
  header.length = static_cast<uint32_t>(payload.size());
  header.payload_checksum = XXH3_64bits(payload.data(), payload.size());
  header.header_check = HeaderCheck(header.length, header.payload_checksum);
  std::vector<std::byte> out(kLogHeaderBytes + payload.size());
  std::memcpy(out.data(), &header, sizeof header);
  if (!payload.empty()) std::memcpy(out.data() + kLogHeaderBytes, payload.data(), payload.size());
  return out;
}

Result<ParsedLog> ParseLog(std::span<const std::byte> bytes) {
  ParsedLog log;
  while (log.good_bytes < bytes.size()) {
    auto payload = RecordAt(bytes, log.good_bytes);
    if (!payload) break;
    log.payloads.push_back(*payload);
    log.good_bytes += kLogHeaderBytes + payload->size();
  }
  if (log.good_bytes == bytes.size() && !log.payloads.empty()) return log;
  const std::string where = "offset " + std::to_string(log.good_bytes);
  if (log.payloads.empty())
    return Status(Code::kIo, "the first record, at " + where + ", is damaged (" +
                                 std::to_string(bytes.size()) + " bytes in the file)");
  if (auto next = NextValidRecord(bytes, log.good_bytes + 1))
    return Status(Code::kIo, "the record at " + where + " is damaged, and a valid one follows at offset " +
                                 std::to_string(*next));
  log.torn_bytes = bytes.size() - log.good_bytes;
  return log;
}

}  // namespace cairn::scheduler
