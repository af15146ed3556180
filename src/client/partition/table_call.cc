#include "client/partition/table_call.h"

#include <string>

namespace cairn::client {
namespace {

const char* ElementName(ElementType type) { return type == ElementType::kFloat32 ? "float32" : "int64"; }

}  // namespace

Status CheckCall(const TableHandle& table, const TableCall& call, const wire::ClusterState& state) {
  const wire::TableInfo& info = table.info;
  const auto named = [&] { return "table \"" + info.spec.name + "\""; };
  if (call.element != info.spec.element) {
    return {Code::kInvalidArgument, named() + " holds " + ElementName(info.spec.element) +
                                        ", the arrays of this call " + ElementName(call.element)};
  }
  if (state.FindTable(info.id) == nullptr && info.id < state.next_table) {
    return {Code::kNotFound, named() + " was dropped: create it again and use the new handle"};
  }
  return Status::Ok();
}

Status CheckGiven(const TableHandle& table, const TableCall& call) {
  const TableSpec& spec = table.info.spec;
  const bool none = call.joined || call.not_finite;
  if (spec.kind != TableKind::kDense || none || !call.values.empty()) return Status::Ok();
  return {Code::kInvalidArgument, "table \"" + spec.name + "\" has " + std::to_string(spec.size) +
                                      " elements, push has 0: give the whole table, or a Done"};
}

PartitionInput InputOf(const TableHandle& table, const TableCall& call, const wire::ClusterState& state) {
  const bool plans = table.plans != nullptr && !state.slots.empty();
  return {.state = &state,
          .table = &table.info,
          .keys = call.keys,
          .values = call.values,
          .out = call.out,
          .hyper = call.hyper,
          .weight = call.weight,
          .weighted = call.weighted,
          .mask = call.mask,
          .borrow = call.borrow,
          .op = call.op,
          .column = call.column,
          .value_scale = call.value_scale,
          .joined = call.joined,
          .not_finite = call.not_finite,
          .scale = call.scale,
          .skip = call.skip,
          .pull_column = call.pull_column,
          .when_assigned = call.when_assigned,
          .plan = plans ? table.plans->Get(table.info, state) : nullptr};
}

}  // namespace cairn::client
