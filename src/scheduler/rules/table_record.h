// One record that carries out the table requests that wait at the same moment (rule 8). It is made
// on a copy of the durable state, which the scheduler commits. No I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "scheduler/rules/durable.h"
#include "scheduler/rules/memory_room.h"
#include "wire/control.h"

namespace cairn::scheduler {

class TableRecord {
 public:
  // `now` must outlive it, unchanged. `most_operations` are remembered of each worker; `memory` is what
  // the servers have left.
  TableRecord(const DurableState& now, size_t most_operations, std::vector<ServerMemory> memory = {})
      : now_(now), most_operations_(most_operations), memory_(std::move(memory)) {}

  // Carries out a CreateTable, CreateTables or DropTable: all of it or, if the reply says why, nothing.
  // A request that was carried out before gets the same answer again. The reply's version is that of
  // the state that has the result.
  wire::TableReply Carry(Incarnation worker, uint64_t request, const wire::ControlMessage& message);
  // Whether this request would change the state.
  bool WouldChange(Incarnation worker, uint64_t request, const wire::ControlMessage& message) const;

  bool changed() const { return next_.has_value(); }
  // Requires changed(). The next version, to be committed.
  DurableState TakeNext() { return std::move(*next_); }
  const std::vector<std::string>& lines() const { return lines_; }  // for the log, once it is committed

 private:
  const DurableState& current() const { return next_ ? *next_ : now_; }
  DurableState& Next();
  const wire::TableInfo* Find(const std::string& name) const;
  // The specs that have to be made; why not, if one of them is refused.
  Result<std::vector<const TableSpec*>> Missing(std::span<const TableSpec> specs) const;
  Status CheckMemoryOf(const std::vector<const TableSpec*>& specs) const;
  wire::TableReply Create(wire::TableReply reply, std::span<const TableSpec> specs, Incarnation worker);
  wire::TableReply Drop(wire::TableReply reply, const std::string& name, Incarnation worker);

  const DurableState& now_;
  const size_t most_operations_;
  const std::vector<ServerMemory> memory_;
  std::optional<DurableState> next_;
  mutable std::unordered_map<std::string, TableId> by_name_;  // of current(), once one was looked for
  std::vector<std::string> lines_;
};

}  // namespace cairn::scheduler
