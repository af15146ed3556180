#include "server/pull/round_waits.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/planted.h"

namespace cairn::server {
namespace {
// This slot does not keep the request waiting.
bool Reached(const SlotRound& round, const ParkedRequest& request) {
  return round.open() >= request.needed ||
         (request.first_phase && round.open().Next() == request.needed && round.summed() != nullptr);
}
}  // namespace

bool RoundWaits::CheckRoom(const wire::FrameHeader& header, ConnId conn, uint64_t bytes) {
  if (parked_.HasRoom(Incarnation{header.incarnation}, bytes)) return true;
  outbox_.SendError(conn, header, {Code::kResourceExhausted, "too many requests wait for a round"});
  return false;
}

void RoundWaits::Await(TableState& table, ParkedRequest request) {
  request.since_us = request.told_us = context_.now_us();
  ParkedRequest& parked = parked_.Add(std::move(request));
  if (CAIRN_BUG(kAckAtStaging) && parked.header.type == wire::FrameType::kContribute)
    return Answer(table, parked);
  Advance(table, parked);
}

void RoundWaits::Advance(TableState& table, ParkedRequest& request) {
  if (request.every_slot) {
    if (!table.rounds.AllReached(request.needed, request.first_phase))
      return table.rounds.WaitForAll(request.id, request.first_phase);
  } else {
    for (; request.next < request.entries.size(); ++request.next) {
      const uint32_t local = slots_.LocalOf(request.entries[request.next].slot);
      if (!Reached(table.rounds[local], request)) return table.rounds.WaitAt(local, request.id);
    }
  }
  Answer(table, request);
}

void RoundWaits::Wake(TableState& table, std::span<const uint32_t> moved, Round lowest_before) {
  woken_.clear();
  table.rounds.TakeWoken(moved, lowest_before, &woken_);
  for (ParkedId id : woken_)
    if (ParkedRequest* request = parked_.Find(id)) Advance(table, *request);
}

void RoundWaits::Answer(TableState& table, ParkedRequest& request) {
  if (request.conn != ConnId{}) {
    if (request.header.type == wire::FrameType::kPull) {
      reader_.Send(request.conn, request.header, table,
                   {request.entries, request.keys, ColumnOf(request.entries)});
    } else {
      AnswerRound(table, request);
    }
  }
  parked_.Remove(request.id);
}

// Calls look(local) for each slot that this request is about.
template <class Look>
void RoundWaits::ForEachSlotOf(const ParkedRequest& request, Look look) const {
  if (!request.every_slot) {
    for (const wire::SlotEntry& entry : request.entries) look(slots_.LocalOfAny(entry.slot));
    return;
  }
  for (uint32_t local = 0; local < slots_.size(); ++local)
    if (slots_[local].primary()) look(local);
}

bool RoundWaits::AllJoined(const TableState& table, const ParkedRequest& request) const {
  if (table.rounds.NoneJoined()) return false;
  bool all = true;
  ForEachSlotOf(request,
                [&](uint32_t local) { all &= table.rounds[local].AllJoinedIn(Round{request.header.round}); });
  return all;
}

void RoundWaits::AnswerRound(TableState& table, const ParkedRequest& request) {
  const wire::FrameHeader& header = request.header;
  const uint16_t joined = AllJoined(table, request) ? wire::kFlagAllJoined : 0;
  problems_.Clear();
  if (table.rounds.AnyUnclean()) {
    ForEachSlotOf(request, [&](uint32_t local) {
      const Status outcome =
          table.rounds[local].OutcomeFor(Incarnation{header.incarnation}, Round{header.round});
      if (!outcome.ok()) problems_.Add(slots_[local].id.value, outcome.code(), 0, outcome.message());
    });
    std::sort(problems_.entries().begin(), problems_.entries().end(),
              [](auto& a, auto& b) { return a.slot < b.slot; });
  }
  if (!problems_.empty()) {
    wire::FramePtr refusal =
        wire::EncodeRoundRefusal(header, problems_.entries(), problems_.text(), context_.pool());
    if (joined != 0) {
      refusal->header().flags |= joined;
      wire::Seal(*refusal);
    }
    return SendAnswer(request, std::move(refusal));
  }
  if (request.first_phase) return SendReport(table, request, joined);
  if ((header.flags & wire::kFlagPullAfter) != 0)
    return reader_.Send(request.conn, header, table,
                        {request.entries, request.keys, 0, joined, request.every_slot});
  wire::DataParts parts = RoundReply(table, header, context_.version());
  parts.flags = joined;
  SendAnswer(request, wire::EncodeData(std::move(parts), context_.pool()));
}

// Clients go by the version that an answer was made under (rule 49).
void RoundWaits::SendAnswer(const ParkedRequest& request, wire::FramePtr frame) {
  if (frame->header().state_version != context_.version().value) {
    frame->header().state_version = context_.version().value;
    wire::Seal(*frame);
  }
  gate_.Send(request.conn, std::move(frame), request.entries, request.every_slot);
}

// A report for each slot that has one, for a frame that carries a mark. A slot that has closed
// meanwhile has none.
void RoundWaits::SendReport(const TableState& table, const ParkedRequest& request, uint16_t joined) {
  reported_.clear();
  if (request.every_slot) {
    ForEachSlotOf(request, [&](uint32_t local) {
      const SlotRound& round = table.rounds[local];
      if (round.open() != Round{request.header.round} || round.summed() == nullptr) return;
      if (!round.summed()->something) return;
      reported_.push_back(
          {slots_[local].id.value, sizeof(wire::SlotReport) / 4, slots_[local].position().packed});
    });
    std::sort(reported_.begin(), reported_.end(), [](auto& a, auto& b) { return a.slot < b.slot; });
  }
  wire::DataParts parts = RoundReply(table, request.header, context_.version());
  parts.flags = wire::kFlagReport | wire::kFlagValuesChecked | joined;
  parts.entries = reported_;
  if (!reported_.empty()) {
    parts.owned = context_.pool().Get(reported_.size() * sizeof(wire::SlotReport));
    std::byte* out = parts.owned.data();
    for (const wire::SlotEntry& entry : reported_) {
      const wire::SlotReport& report = table.rounds[slots_.LocalOfAny(entry.slot)].summed()->report;
      std::memcpy(out, &report, sizeof(report));
      out += sizeof(report);
    }
  }
  SendAnswer(request, wire::EncodeData(std::move(parts), context_.pool()));
}

void RoundWaits::AnswerAll(const Status& error) {
  for (const ParkedRequest& request : parked_.TakeAll())
    if (request.conn != ConnId{}) outbox_.SendError(request.conn, request.header, error);
}

void RoundWaits::AnswerTable(TableId table, const Status& error) {
  for (const ParkedRequest& request : parked_.TakeTable(table))
    if (request.conn != ConnId{}) outbox_.SendError(request.conn, request.header, error);
}

uint32_t RoundWaits::WaitsAt(const TableState& table, const ParkedRequest& request) const {
  if (!request.every_slot) return slots_.LocalOf(request.entries[request.next].slot);
  uint32_t local = 0;
  while (local < slots_.size() && (!slots_[local].primary() || Reached(table.rounds[local], request)))
    ++local;
  CAIRN_CHECK(local < slots_.size());  // or it would have been answered
  return local;
}

void RoundWaits::TellWaiting() {
  for (auto& [id, request] : parked_.all()) {
    if (request.conn == ConnId{} || context_.now_us() - request.told_us < context_.options().still_waiting_us)
      continue;
    request.told_us = context_.now_us();
    const TableState& table = *tables_.Find(TableId{request.header.table});
    const uint32_t local = WaitsAt(table, request);
    const SlotRound& round = table.rounds[local];
    outbox_.Send(
        request.conn,
        wire::EncodeControl(wire::StillWaiting{request.header.request_id, table.info.id, round.open(),
                                               round.MissingRanks(slots_[local].id, table.rounds.marks())},
                            context_.pool()));
  }
}

std::vector<wire::StalledRound> RoundWaits::stalled() const {
  std::vector<wire::StalledRound> rounds;
  parked_.ForEachStalled(context_.now_us(), [&](const ParkedRequest& request, int64_t waited_us) {
    const TableState& table = *tables_.Find(TableId{request.header.table});
    const uint32_t local = WaitsAt(table, request);
    const SlotRound& round = table.rounds[local];
    wire::AddStalled(rounds, Stalled(table.info.id, round.open(), waited_us,
                                     round.MissingRanks(slots_[local].id, table.rounds.marks())));
  });
  return rounds;
}

}  // namespace cairn::server
