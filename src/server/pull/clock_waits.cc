#include "server/pull/clock_waits.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/planted.h"
#include "server/slots/refusal_texts.h"

namespace cairn::server {
namespace {

// What every worker must have told before a pull at this clock is answered.
Round NeededFor(const TableSpec& spec, Round clock) {
  return Round{clock.value > spec.staleness ? clock.value - spec.staleness : 0};
}
}  // namespace

Status ClockWaits::NotYetIn(const Request& request, const TableState& table) const {
  if (table.clocks.Counts(request.incarnation())) return Status::Ok();
  return {Code::kUnavailable, "table \"" + table.info.spec.name + "\" is bounded, and rank " +
                                  std::to_string(request.client->rank.value) + " is not in a view yet"};
}

void ClockWaits::OnClock(const Request& request) {
  const wire::FrameHeader& header = request.header();
  TableState* table = nullptr;
  Status problem = tables_.Find(request.table(), &table);
  if (problem.ok() && table == nullptr) problem = DroppedTable(request.table());
  if (problem.ok() && !table->bounded()) problem = WrongMode(table->info.spec, "a clock");
  if (problem.ok()) problem = NotYetIn(request, *table);
  if (!problem.ok()) return outbox_.SendError(request.conn, header, problem);
  const bool last = request.has(wire::kFlagDone);
  if (last || request.round() > Round{0}) {
    const Round before = table->clocks.lowest();
    table->clocks.Told(request.incarnation(), request.round(), last);
    if (table->clocks.lowest() > before) Wake(*table);
  }
  outbox_.Send(request.conn, wire::EncodeClockReply(header, table->clocks.StartFor(request.incarnation()),
                                                    context_.version(), context_.pool()));
}

void ClockWaits::OnPull(const Request& request, TableState& table, const wire::PullView& pull) {
  const wire::FrameHeader& header = request.header();
  if (parked_.Adopt(header, request.conn) != nullptr) return;
  Status problem = CheckPullShape(table.info.spec, pull.entries, pull.keys);
  if (problem.ok()) problem = NotYetIn(request, table);
  if (!problem.ok()) return outbox_.SendError(request.conn, header, problem);
  ParkedRequest parked;
  parked.conn = request.conn;
  parked.header = header;
  parked.needed = NeededFor(table.info.spec, request.round());
  parked.entries = pull.entries;
  parked.keys = pull.keys;
  if (parked.needed <= table.clocks.lowest() || CAIRN_BUG(kBoundNotEnforced)) return Answer(table, parked);
  if (!parked_.HasRoom(request.incarnation(), request.frame.storage.capacity()))
    return outbox_.SendError(request.conn, header,
                             {Code::kResourceExhausted, "too many requests wait for slower workers"});
  parked.storage = std::move(request.frame.storage);
  parked.since_us = parked.told_us = context_.now_us();
  const Round needed = parked.needed;
  waiting_[table.info.id].emplace(needed, parked_.Add(std::move(parked)).id);
}

void ClockWaits::Answer(TableState& table, const ParkedRequest& request) {
  Reading reading{request.entries, request.keys, ColumnOf(request.entries)};
  reading.clock = table.clocks.lowest();
  reader_.Send(request.conn, request.header, table, reading);
}

void ClockWaits::Wake(TableState& table) {
  const auto waiting = waiting_.find(table.info.id);
  if (waiting == waiting_.end()) return;
  ByClock& by_clock = waiting->second;
  while (!by_clock.empty() && by_clock.begin()->first <= table.clocks.lowest()) {
    const ParkedId id = by_clock.begin()->second;
    by_clock.erase(by_clock.begin());
    ParkedRequest* const request = parked_.Find(id);
    if (request == nullptr) continue;  // of a client that is gone
    if (request->conn != ConnId{}) Answer(table, *request);
    parked_.Remove(id);
  }
}

void ClockWaits::OnState() {
  for (auto& [id, by_clock] : waiting_)
    if (TableState* table = tables_.Find(id)) Wake(*table);
}

void ClockWaits::AnswerAll(const Status& error) {
  waiting_.clear();
  for (const ParkedRequest& request : parked_.TakeAll())
    if (request.conn != ConnId{}) outbox_.SendError(request.conn, request.header, error);
}

void ClockWaits::AnswerTable(TableId table, const Status& error) {
  waiting_.erase(table);
  for (const ParkedRequest& request : parked_.TakeTable(table))
    if (request.conn != ConnId{}) outbox_.SendError(request.conn, request.header, error);
}

void ClockWaits::TellWaiting() {
  for (auto& [id, request] : parked_.all()) {
    if (request.conn == ConnId{} || context_.now_us() - request.told_us < context_.options().still_waiting_us)
      continue;
    request.told_us = context_.now_us();
    const TableState& table = *tables_.Find(TableId{request.header.table});
    outbox_.Send(request.conn,
                 wire::EncodeControl(
                     wire::StillWaiting{request.header.request_id, table.info.id, table.clocks.lowest(),
                                        table.clocks.RanksBelow(request.needed)},
                     context_.pool()));
  }
}

std::vector<wire::StalledRound> ClockWaits::stalled() const {
  std::vector<wire::StalledRound> rounds;
  parked_.ForEachStalled(context_.now_us(), [&](const ParkedRequest& request, int64_t waited_us) {
    const TableState& table = *tables_.Find(TableId{request.header.table});
    wire::AddStalled(
        rounds, Stalled(table.info.id, request.needed, waited_us, table.clocks.RanksBelow(request.needed)));
  });
  return rounds;
}

}  // namespace cairn::server
