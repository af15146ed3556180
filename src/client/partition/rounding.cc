#include "client/partition/rounding.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/planted.h"
#include "client/partition/check_options.h"
#include "client/partition/table_facts.h"
#include "wire/coding.h"

namespace cairn::client {
namespace {

const char* FormatWord(WireFormat format) {
  return format == WireFormat::kFloat16 ? "float16, which ends at 65504" : "bfloat16, which ends at 3.39e38";
}

const char kAdvice[] =
    ": nothing was sent; clip the gradient or scale the loss, or use a table with another `wire`";

bool InPushAt(const PartitionInput& input, uint64_t element) {
  const std::vector<uint64_t>& ends = input.table->spec.segments;
  const auto segment = std::upper_bound(ends.begin(), ends.end(), element) - ends.begin();
  return input.mask.empty() || InPush(input, static_cast<size_t>(segment));
}

// Names the first element of the push that is too large; ok if there is none.
Status FindTooLarge(const PartitionInput& input) {
  const WireFormat format = input.table->spec.wire;
  uint64_t element = 0;
  for (std::span<const std::byte> piece : input.values.pieces()) {
    const size_t count = piece.size() / sizeof(float);
    for (size_t i = 0; piece.data() != nullptr && i < count; ++i) {
      float value;
      std::memcpy(&value, piece.data() + i * sizeof(float), sizeof(value));
      const float was = value;
      const auto bytes = std::as_writable_bytes(std::span(&value, 1));
      if (wire::RoundValues(format, wire::TooLarge::kInfinite, bytes)) continue;
      if (!InPushAt(input, element + i)) continue;
      return {Code::kNotFinite, "element " + std::to_string(element + i) + " of the push to " +
                                    Named(*input.table) + " is " + std::to_string(was) + ", too large for " +
                                    FormatWord(format) + kAdvice};
    }
    element += count;
  }
  return Status::Ok();
}

}  // namespace

bool ChangesValues(const PartitionInput& input) {
  const WireFormat format = input.table->spec.wire;
  return input.op == PushOp::kUpdate && format != WireFormat::kPlain && format != WireFormat::kLz4;
}

ErrorFeedback::Chosen ChooseLargest(ErrorFeedback* feedback, PartitionInput& input) {
  if (feedback == nullptr || !ChangesValues(input)) return {};
  if (input.joined || input.not_finite || input.weight == 0) return {};  // the values do not count
  ErrorFeedback::Chosen chosen = feedback->Choose(input.values, input.mask, input.value_scale);
  if (chosen) input.values = chosen.values();
  return chosen;
}

Status RoundDrafts(const PartitionInput& input, Drafts& drafts) {
  const TableSpec& spec = input.table->spec;
  if (!ChangesValues(input) || spec.wire == WireFormat::kTopK) return Status::Ok();
  if (CAIRN_BUG(kGradientNotRounded)) return Status::Ok();
  bool finite = true;
  for (Draft& draft : drafts)
    finite &= wire::RoundValues(spec.wire, wire::TooLarge::kInfinite, draft.owned.bytes());
  if (finite || !ChecksFinite(spec)) return Status::Ok();
  if (Status large = FindTooLarge(input); !large.ok()) return large;
  if (spec.kind == TableKind::kDense) return Status::Ok();  // in a segment that is not in the push
  return {Code::kNotFinite, "keys repeat in the push to " + Named(*input.table) +
                                " and the sum of their rows is too large for " + FormatWord(spec.wire) +
                                kAdvice};
}

}  // namespace cairn::client
