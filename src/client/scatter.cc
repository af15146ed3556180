#include "client/scatter.h"

#include <cstring>

#include "base/check.h"

namespace cairn::client {

size_t ExpectedBytes(const ShardPart& part) {
  size_t bytes = part.rows.size() * part.row_bytes;
  for (std::span<std::byte> piece : part.into) bytes += piece.size();
  return bytes;
}

void Scatter(const ShardPart& part, std::span<const std::byte> values) {
  CAIRN_CHECK(values.size() == ExpectedBytes(part));
  const std::byte* from = values.data();
  for (std::span<std::byte> piece : part.into) {
    if (piece.data() != nullptr) std::memcpy(piece.data(), from, piece.size());
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
}

}  // namespace cairn::client
