// The scheduler's log: any bytes are parsed to whole records, a torn tail or an error; what was
// parsed parses again to the same; and any record decodes or is refused.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "scheduler/metastore/log_records.h"
#include "scheduler/rules/durable.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn::scheduler;  // NOLINT: a fuzz target of one function
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  if (auto log = ParseLog(bytes); log.ok()) {
    CAIRN_CHECK(log->good_bytes + log->torn_bytes == size);
    auto again = ParseLog(bytes.first(log->good_bytes));
    CAIRN_CHECK(again.ok() && again->payloads.size() == log->payloads.size() && again->torn_bytes == 0);
    for (auto payload : log->payloads) (void)DecodeRecord(payload);
  }
  // Checksums keep the fuzzer out of the records: give it one without.
  if (auto durable = DecodeRecord(bytes); durable.ok()) {
    auto again = DecodeRecord(EncodeRecord(*durable));
    CAIRN_CHECK(again.ok());
  }
  // A whole record in front turns whatever follows into a tail.
  std::vector<std::byte> tailed = EncodeLogRecord(bytes.first(size / 2));
  tailed.insert(tailed.end(), bytes.begin(), bytes.end());
  if (auto log = ParseLog(tailed); log.ok()) CAIRN_CHECK(!log->payloads.empty());
  return 0;
}
