#include "scheduler/rules/table_record.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "scheduler/rules/durable.h"
#include "scheduler/rules/memory_room.h"
#include "scheduler/rules/table_spec.h"
#include "scheduler/rules/tables.h"
#include "scheduler/rules/user_text.h"

namespace cairn::scheduler {
namespace {

constexpr size_t kMostLines = 16;  // of one request that makes many tables

std::span<const TableSpec> SpecsOf(const wire::ControlMessage& message) {
  if (const auto* one = std::get_if<wire::CreateTable>(&message)) return {&one->spec, 1};
  if (const auto* many = std::get_if<wire::CreateTables>(&message)) return many->specs;
  return {};
}

// Empty: it may be there, or is the same.
Status CheckSame(const TableSpec& there, const TableSpec& asked) {
  const std::string difference = DescribeDifference(there, asked);
  if (difference.empty()) return Status::Ok();
  return {Code::kAlreadyExists, "table \"" + asked.name + "\" is already there with another " + difference +
                                    ": use the same spec, another name, or drop it first"};
}

}  // namespace

DurableState& TableRecord::Next() {
  if (!next_) {
    next_ = now_;
    next_->state.version = now_.state.version.Next();
  }
  return *next_;
}

const wire::TableInfo* TableRecord::Find(const std::string& name) const {
  const wire::ClusterState& state = current().state;
  if (by_name_.empty())
    for (const wire::TableInfo& table : state.tables) by_name_.emplace(table.spec.name, table.id);
  const auto it = by_name_.find(name);
  if (it == by_name_.end()) return nullptr;
  const auto at = std::lower_bound(state.tables.begin(), state.tables.end(), it->second,
                                   [](const wire::TableInfo& table, TableId id) { return table.id < id; });
  return &*at;
}

Result<std::vector<const TableSpec*>> TableRecord::Missing(std::span<const TableSpec> specs) const {
  std::vector<const TableSpec*> missing;
  std::unordered_map<std::string, const TableSpec*> asked;
  for (const TableSpec& spec : specs) {
    const auto slots = static_cast<uint32_t>(current().state.slots.size());
    if (Status wrong = CheckSpec(spec, slots); !wrong.ok()) return wrong;
    const wire::TableInfo* there = Find(spec.name);
    const auto [before, first] = asked.emplace(spec.name, &spec);
    const TableSpec* same = there != nullptr ? &there->spec : first ? nullptr : before->second;
    if (same == nullptr) {
      missing.push_back(&spec);
    } else if (Status differs = CheckSame(*same, spec); !differs.ok()) {
      return differs;
    }
  }
  if (Status full = CheckRoom(current().state, missing); !full.ok()) return full;
  if (Status full = CheckMemoryOf(missing); !full.ok()) return full;
  return missing;
}

// Each one beside those before it.
Status TableRecord::CheckMemoryOf(const std::vector<const TableSpec*>& specs) const {
  const bool dense = std::any_of(specs.begin(), specs.end(),
                                 [](const TableSpec* spec) { return spec->kind == TableKind::kDense; });
  if (memory_.empty() || !dense) return Status::Ok();
  if (specs.size() == 1) return CheckMemory(current().state, *specs.front(), memory_);
  DurableState trial = current();
  for (const TableSpec* spec : specs) {
    if (Status full = CheckMemory(trial.state, *spec, memory_); !full.ok()) return full;
    AddTable(trial, *spec);
  }
  return Status::Ok();
}

bool TableRecord::WouldChange(Incarnation worker, uint64_t request,
                              const wire::ControlMessage& message) const {
  if (FindOperation(now_, worker, request) != nullptr) return false;
  if (const auto* drop = std::get_if<wire::DropTable>(&message)) return Find(drop->name) != nullptr;
  const auto missing = Missing(SpecsOf(message));
  return missing.ok() && !missing->empty();
}

wire::TableReply TableRecord::Carry(Incarnation worker, uint64_t request,
                                    const wire::ControlMessage& message) {
  wire::TableReply reply{request, Code::kOk, "", TableId(0), current().state.version};
  if (const TableOperation* done = FindOperation(now_, worker, request)) {
    reply.table = done->table;
    reply.version = done->version;
  } else if (const auto* drop = std::get_if<wire::DropTable>(&message)) {
    reply = Drop(reply, drop->name, worker);
  } else {
    reply = Create(reply, SpecsOf(message), worker);
  }
  if (std::holds_alternative<wire::CreateTables>(message)) reply.table = TableId(0);
  return reply;
}

wire::TableReply TableRecord::Create(wire::TableReply reply, std::span<const TableSpec> specs,
                                     Incarnation worker) {
  const auto missing = Missing(specs);
  if (!missing.ok()) {
    reply.code = missing.status().code();
    reply.text = missing.status().message();
    return reply;
  }
  if (missing->empty()) {
    reply.table = Find(specs.back().name)->id;
    return reply;
  }
  DurableState& next = Next();
  for (const TableSpec* spec : *missing) {
    reply.table = AddTable(next, *spec);
    by_name_.emplace(spec->name, reply.table);
    if (missing->size() <= kMostLines)
      lines_.push_back("table " + std::to_string(reply.table.value) + " \"" + spec->name +
                       "\": " + Describe(*spec));
  }
  if (missing->size() > kMostLines)
    lines_.push_back(std::to_string(missing->size()) + " tables, from \"" + missing->front()->name +
                     "\" to " + std::to_string(reply.table.value) + " \"" + missing->back()->name + "\"");
  reply.version = next.state.version;
  RememberOperation(next, worker, reply.request, reply.table, most_operations_);
  return reply;
}

wire::TableReply TableRecord::Drop(wire::TableReply reply, const std::string& name, Incarnation worker) {
  const wire::TableInfo* there = Find(name);
  if (there == nullptr) {
    // Several workers may drop the same table: it is gone, which is what each of them wants.
    const auto& gone = current().dropped_names;
    if (std::find(gone.begin(), gone.end(), name) != gone.end()) return reply;
    reply.code = Code::kNotFound;
    reply.text = "no table is named \"" + Printable(name, 255) + "\"";
    return reply;
  }
  reply.table = there->id;
  DurableState& next = Next();
  reply.version = next.state.version;
  RemoveTable(next, reply.table);
  by_name_.erase(name);
  RememberOperation(next, worker, reply.request, reply.table, most_operations_);
  lines_.push_back("table " + std::to_string(reply.table.value) + " \"" + name + "\" is dropped");
  return reply;
}

}  // namespace cairn::scheduler
