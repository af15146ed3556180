#include "client/partition/scatter.h"

#include <cstring>

#include "base/check.h"
#include "base/copy_bytes.h"

namespace cairn::client {

size_t ExpectedBytes(const ShardPart& part) {
  size_t bytes = part.rows.size() * part.row_bytes;
  for (std::span<std::byte> piece : part.into) bytes += piece.size();
  return bytes;
}

size_t KeyBytes(std::span<const wire::SlotEntry> entries) {
  size_t keys = 0;
  for (const wire::SlotEntry& entry : entries) keys += entry.count;
  return keys * sizeof(RowKey);
}

void Scatter(const ShardPart& part, std::span<const std::byte> values) {
  if (part.keys != nullptr) {
    const size_t before = part.keys->size();
    part.keys->resize(before + values.size() / sizeof(RowKey));
    if (!values.empty()) std::memcpy(part.keys->data() + before, values.data(), values.size());
    return;
  }
  CAIRN_CHECK(values.size() == ExpectedBytes(part));
  const std::byte* from = values.data();
  for (std::span<std::byte> piece : part.into) {
    if (piece.data() != nullptr) CopyBytes(piece.data(), from, piece.size());
    from += piece.size();
  }
  const std::byte* rows = from;
  const size_t width = part.row_bytes;
  for (uint32_t row : part.rows) {
    std::memcpy(part.out + size_t{row} * width, from, width);
    from += width;
  }
  for (const ShardPart::Repeat& repeat : part.repeats) {
    std::memcpy(part.out + size_t{repeat.to} * width, rows + size_t{repeat.from} * width, width);
  }
}

void DropTargets(ShardPart& part) {
  part.into.clear();
  part.rows.clear();
  part.repeats.clear();
  part.out = nullptr;
  part.keys = nullptr;
}

}  // namespace cairn::client
