#include "client/partition/check_input.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "client/partition/check_options.h"
#include "client/partition/finite.h"
#include "client/partition/table_facts.h"
#include "optimizer/narrow.h"
#include "optimizer/span_ops.h"
#include "wire/data.h"
#include "wire/frame.h"

namespace cairn::client {
namespace {

template <class Byte>
Status CheckDense(const PartitionInput& input, const char* verb, const PieceList<Byte>& array) {
  const TableSpec& spec = input.table->spec;
  const size_t width = ElementBytes(spec);
  if (!input.keys.empty()) return Wrong(Named(*input.table) + " is dense: a " + verb + " has no keys");
  for (std::span<Byte> piece : array.pieces()) {
    if (piece.size() % width != 0)
      return Wrong(std::string("a ") + verb + " of " + Named(*input.table) +
                   " has a piece that ends within an element");
  }
  if (array.bytes() == spec.size * width) return Status::Ok();
  const size_t pieces = array.pieces().size();
  return Wrong(Named(*input.table) + " has " + std::to_string(spec.size) + " elements, " + verb + " has " +
               std::to_string(array.bytes() / width) +
               (pieces > 1 ? " in " + std::to_string(pieces) + " pieces" : "") +
               ": give the whole table, or make it anew with this size");
}

Status CheckSparse(const PartitionInput& input, const char* verb, size_t bytes) {
  const TableSpec& spec = input.table->spec;
  if (input.keys.size() > std::numeric_limits<uint32_t>::max()) {
    return Wrong(std::to_string(input.keys.size()) + " keys in one " + verb + " of " + Named(*input.table) +
                 ": give at most 4294967295 at a time");
  }
  if (bytes == input.keys.size() * spec.dim * ElementBytes(spec)) return Status::Ok();
  return Wrong(Named(*input.table) + " has rows of " + std::to_string(spec.dim) +
               " elements: " + std::to_string(input.keys.size()) + " keys need " +
               std::to_string(input.keys.size() * spec.dim) + ", " + verb + " has " +
               std::to_string(bytes / ElementBytes(spec)));
}

template <class Byte>
Status CheckShape(const PartitionInput& input, const char* verb, const PieceList<Byte>& array) {
  const size_t width = ElementBytes(input.table->spec);
  if (array.bytes() % width != 0) {
    return Wrong(std::string("a ") + verb + " of " + Named(*input.table) + " has " +
                 std::to_string(array.bytes()) + " bytes, not a multiple of an element's " +
                 std::to_string(width));
  }
  return input.table->spec.kind == TableKind::kDense ? CheckDense(input, verb, array)
                                                     : CheckSparse(input, verb, array.bytes());
}

size_t SegmentOf(const TableSpec& spec, uint64_t element) {
  return static_cast<size_t>(std::upper_bound(spec.segments.begin(), spec.segments.end(), element) -
                             spec.segments.begin());
}

const char kAllow[] =
    ": nothing was sent; look for the cause in the gradient, or create the table with non_finite = allow";

Status BadElement(const PartitionInput& input, uint64_t element, const std::byte* at) {
  float value;
  std::memcpy(&value, at, sizeof(value));
  return {Code::kNotFinite, "element " + std::to_string(element) + " of the push to " + Named(*input.table) +
                                " is " + (std::isnan(value) ? "NaN" : "infinite") + kAllow};
}

// What rows are assigned is stored as it is: a number beyond float16's would be another one. (The servers
// check it too, but each only its own slots, and by then others have theirs.)
Status CheckStorage(const PartitionInput& input) {
  const TableSpec& spec = input.table->spec;
  const bool stored = input.op != PushOp::kUpdate && input.column == 0;  // state stays float32
  if (!stored || spec.storage != Storage::kFloat16) return Status::Ok();
  const std::span<const std::byte> values = input.values.whole();
  for (size_t at = 0; at < values.size(); at += sizeof(float)) {
    float value;
    std::memcpy(&value, values.data() + at, sizeof(value));
    if (!std::isfinite(value) || std::abs(value) <= optimizer::LargestOf(spec.storage)) continue;
    return Wrong("element " + std::to_string(at / sizeof(float)) + " of the assign to " +
                 Named(*input.table) + " is " + std::to_string(value) +
                 ", beyond the largest number of float16, 65504: nothing was " +
                 "sent; use bfloat16 or float32");
  }
  return Status::Ok();
}

}  // namespace

Status CheckInput(const PartitionInput& input, const Directions& what) {
  if (input.state->slots.empty()) {
    return {Code::kUnavailable, "the cluster is not complete yet: wait until the client is connected"};
  }
  if (what.push) {
    if (Status s = CheckShape(input, "push", input.values); !s.ok()) return s;
    if (Status s = CheckStorage(input); !s.ok()) return s;
  }
  if (what.pull) return CheckShape(input, "pull", input.out);
  return Status::Ok();
}

namespace {
// The widest instructions that there are, where the floats lie as floats do.
bool AllFiniteFast(std::span<const std::byte> bytes) {
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(float) != 0) return AllFinite(bytes);
  return optimizer::AllFinite({reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)});
}
}  // namespace

Status CheckFinite(const PartitionInput& input) {
  uint64_t before = 0;  // elements
  for (std::span<const std::byte> piece : input.values.pieces()) {
    const bool bad = piece.data() != nullptr && !AllFiniteFast(piece);
    for (size_t at = 0; bad && at < piece.size();) {
      const size_t skipped = FirstNotFinite(piece.subspan(at));
      at += skipped * sizeof(float);
      if (at == piece.size()) break;
      const uint64_t element = before + at / sizeof(float);
      if (InPush(input, SegmentOf(input.table->spec, element)))
        return BadElement(input, element, piece.data() + at);
      at += sizeof(float);
    }
    before += piece.size() / sizeof(float);
  }
  return Status::Ok();
}

Status NotFiniteError(const PartitionInput& input) {
  const std::span<const std::byte> values = input.values.whole();
  const size_t element = FirstNotFinite(values);
  if (element * sizeof(float) < values.size())
    return BadElement(input, element, values.data() + element * sizeof(float));
  return {Code::kNotFinite, "keys repeat in the push to " + Named(*input.table) +
                                " and the sum of their rows is not finite" + kAllow};
}

Status CheckFrameBytes(const PartitionInput& input, uint64_t value_bytes, uint64_t key_count,
                       uint64_t entries) {
  constexpr uint64_t kSections = sizeof(wire::PushParams) + 5 * wire::kAlignment;  // and padding
  const uint64_t bits = input.state->slots.size() / 8 + SegmentCount(input.table->spec) / 8 + 2;
  const uint64_t bytes =
      value_bytes + key_count * sizeof(RowKey) + entries * sizeof(wire::SlotEntry) + bits + kSections;
  if (bytes <= wire::kMaxBodyBytes) return Status::Ok();
  return Wrong("one partition's part of a request to " + Named(*input.table) + " has " +
               std::to_string(bytes) + " bytes, " + std::to_string(wire::kMaxBodyBytes) +
               " are allowed: use smaller batches, or a cluster with more partitions");
}

}  // namespace cairn::client
