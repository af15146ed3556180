// What a user can get wrong about a request, in words: what happened, to what, and what to do.
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "client/draft.h"
#include "client/finite.h"
#include "wire/data.h"
#include "wire/frame.h"

namespace cairn::client {
namespace {

std::string Named(const wire::TableInfo& table) { return "table \"" + table.spec.name + "\""; }

Status Wrong(std::string text) { return {Code::kInvalidArgument, std::move(text)}; }

Status CheckDense(const PartitionInput& input, const char* verb, size_t bytes) {
  const TableSpec& spec = input.table->spec;
  if (!input.keys.empty()) return Wrong(Named(*input.table) + " is dense: a " + verb + " has no keys");
  if (bytes == spec.size * ElementBytes(spec)) return Status::Ok();
  return Wrong(Named(*input.table) + " has " + std::to_string(spec.size) + " elements, " + verb + " has " +
               std::to_string(bytes / ElementBytes(spec)) +
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

Status CheckShape(const PartitionInput& input, const char* verb, size_t bytes) {
  if (bytes % ElementBytes(input.table->spec) != 0) {
    return Wrong(std::string("a ") + verb + " of " + Named(*input.table) + " has " + std::to_string(bytes) +
                 " bytes, not a multiple of an element's " + std::to_string(ElementBytes(input.table->spec)));
  }
  return input.table->spec.kind == TableKind::kDense ? CheckDense(input, verb, bytes)
                                                     : CheckSparse(input, verb, bytes);
}

}  // namespace

Status CheckInput(const PartitionInput& input, const Directions& what) {
  const std::string of = " of a push to " + Named(*input.table);
  if (!(input.weight >= 0 && input.weight <= wire::kMaxWeight)) {
    return Wrong("the weight" + of + " is " + std::to_string(input.weight) +
                 ": it must not be negative, NaN or above 1e30");
  }
  if (!std::isfinite(input.hyper.lr) || !std::isfinite(input.hyper.weight_decay)) {
    return Wrong("the learning rate or weight decay" + of + " is not finite");
  }
  if (input.state->slots.empty()) {
    return {Code::kUnavailable, "the cluster is not complete yet: wait until the client is connected"};
  }
  if (what.push) {
    if (Status s = CheckShape(input, "push", input.values.size()); !s.ok()) return s;
  }
  if (what.pull) return CheckShape(input, "pull", input.out.size());
  return Status::Ok();
}

Status NotFiniteError(const PartitionInput& input) {
  const size_t element = FirstNotFinite(input.values);
  const std::string allow =
      ": nothing was sent; look for the cause in the gradient, or create the table with policy allow";
  if (element * sizeof(float) < input.values.size()) {
    float value;
    std::memcpy(&value, input.values.data() + element * sizeof(float), sizeof(value));
    return {Code::kNotFinite, "element " + std::to_string(element) + " of the push to " +
                                  Named(*input.table) + " is " + (std::isnan(value) ? "NaN" : "infinite") +
                                  allow};
  }
  return {Code::kNotFinite, "keys repeat in the push to " + Named(*input.table) +
                                " and the sum of their rows is not finite" + allow};
}

Status CheckFrameBytes(const PartitionInput& input, uint64_t value_bytes, uint64_t key_count,
                       uint64_t entries) {
  constexpr uint64_t kSections = 5 * wire::kAlignment;  // parameters and padding
  const uint64_t bitmap = input.state->slots.size() / 8 + 1;
  const uint64_t bytes =
      value_bytes + key_count * sizeof(RowKey) + entries * sizeof(wire::SlotEntry) + bitmap + kSections;
  if (bytes <= wire::kMaxBodyBytes) return Status::Ok();
  return Wrong("one partition's part of a request to " + Named(*input.table) + " has " +
               std::to_string(bytes) + " bytes, " + std::to_string(wire::kMaxBodyBytes) +
               " are allowed: use smaller batches, or a cluster with more partitions");
}

}  // namespace cairn::client
