#include "server/pull/pulls.h"

#include <algorithm>
#include <utility>

#include "server/slots/refusal_texts.h"

namespace cairn::server {

Status Pulls::OnPull(const Request& request) {
  const wire::FrameHeader& header = request.header();
  Result<wire::PullView> pull = wire::DecodePull(header, request.frame.body());
  if (!pull.ok()) return pull.status();
  TableState* table = nullptr;
  Status problem = slots_.CheckOwner(pull->entries, header.state_version, context_.name());
  if (problem.ok()) problem = tables_.Find(request.table(), &table);
  if (problem.ok() && table == nullptr) problem = DroppedTable(request.table());
  const bool waits = request.has(wire::kFlagSyncPull);
  const bool bounded = problem.ok() && table->bounded();
  if (problem.ok()) {
    ++pulls_;
    if (waits && !bounded) problem = CheckSync(request, *table, *pull);
  }
  if (!problem.ok()) {
    outbox_.SendError(request.conn, header, problem);
    return Status::Ok();
  }
  if (waits && bounded) {
    clock_waits_.OnPull(request, *table, *pull);
    return Status::Ok();
  }
  if (!waits) {
    reader_.Send(request.conn, header, *table, {pull->entries, pull->keys, ColumnOf(pull->entries)});
    return Status::Ok();
  }
  if (waits_.Adopt(header, request.conn)) return Status::Ok();
  if (!waits_.CheckRoom(header, request.conn, request.frame.storage.capacity())) return Status::Ok();
  ParkedRequest parked;
  parked.conn = request.conn;
  parked.header = header;
  parked.needed = request.round();
  parked.entries = pull->entries;
  parked.keys = pull->keys;
  parked.storage = std::move(request.frame.storage);
  waits_.Await(*table, std::move(parked));
  return Status::Ok();
}

Status Pulls::CheckSync(const Request& request, const TableState& table, const wire::PullView& pull) {
  if (!table.sync()) return WrongMode(table.info.spec, "a sync pull");
  if (Status s = CheckPullShape(table.info.spec, pull.entries, pull.keys); !s.ok()) return s;
  // A worker asks for the round after its last one, which may be its first and not be open here yet.
  const Round open = table.rounds.highest_open();
  if (request.round() <= std::max(open, table.rounds.latest_start()).Next()) return Status::Ok();
  return {Code::kInvalidArgument, "table \"" + table.info.spec.name + "\": round " +
                                      std::to_string(request.round().value) +
                                      " is far ahead, the open one is " + std::to_string(open.value)};
}

}  // namespace cairn::server
