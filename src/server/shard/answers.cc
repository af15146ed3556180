// Answers to those who have waited (docs/internals/consistency.md, rules 18, 32 and 33): values, reports,
// "closed", or why not. A copy that comes after the close gets the same outcome.
#include <algorithm>
#include <cstring>
#include <utility>

#include "server/shard/shard_impl.h"
#include "wire/coding.h"

namespace cairn::server {

void ShardImpl::Answer(TableState& table, ParkedRequest& request) {
  if (request.conn != ConnId{}) {
    if (request.header.type == wire::FrameType::kPull) {
      SendValues(request.conn, request.header, table,
                 {request.entries, request.keys, ColumnOf(request.entries)});
    } else {
      AnswerRound(table, request);
    }
  }
  parked_.Remove(request.id);
}

// Calls look(local) for each slot that this request is about.
template <class Look>
void ShardImpl::ForEachSlotOf(const ParkedRequest& request, Look look) const {
  if (!request.every_slot) {
    for (const wire::SlotEntry& entry : request.entries) look(slots_.LocalOfAny(entry.slot));
    return;
  }
  for (uint32_t local = 0; local < slots_.size(); ++local)
    if (slots_[local].primary()) look(local);
}

// Not in any slot where it was otherwise. A shard without slots does not stand in the way.
bool ShardImpl::AllJoined(const TableState& table, const ParkedRequest& request) const {
  if (table.rounds.NoneJoined()) return false;
  bool all = true;
  ForEachSlotOf(request,
                [&](uint32_t local) { all &= table.rounds[local].AllJoinedIn(Round{request.header.round}); });
  return all;
}

void ShardImpl::AnswerRound(TableState& table, const ParkedRequest& request) {
  const wire::FrameHeader& header = request.header;
  const uint16_t joined = AllJoined(table, request) ? wire::kFlagAllJoined : 0;
  problems_.clear();
  if (table.rounds.AnyUnclean()) {
    ForEachSlotOf(request, [&](uint32_t local) {
      const Status outcome =
          table.rounds[local].OutcomeFor(Incarnation{header.incarnation}, Round{header.round});
      if (!outcome.ok()) AddProblem(slots_[local].id.value, outcome.code(), 0, outcome.message());
    });
    std::sort(problems_.begin(), problems_.end(), [](auto& a, auto& b) { return a.slot < b.slot; });
  }
  if (!problems_.empty()) {
    wire::FramePtr refusal = wire::EncodeRoundRefusal(header, problems_, problem_text_, context_.pool());
    if (joined != 0) {
      refusal->header().flags |= joined;
      wire::Seal(*refusal);
    }
    return SendRoundAnswer(request, std::move(refusal));
  }
  if (request.first_phase) return SendReport(table, request, joined);
  if ((header.flags & wire::kFlagPullAfter) != 0)
    return SendValues(request.conn, header, table,
                      {request.entries, request.keys, 0, joined, request.every_slot});
  wire::DataParts parts = RoundReply(table, header);
  parts.flags = joined;
  SendRoundAnswer(request, wire::EncodeData(std::move(parts), context_.pool()));
}

// Clients go by the version that an answer was made under (rule 49).
void ShardImpl::SendRoundAnswer(const ParkedRequest& request, wire::FramePtr frame) {
  if (frame->header().state_version != context_.version().value) {
    frame->header().state_version = context_.version().value;
    wire::Seal(*frame);
  }
  gate_.Send(request.conn, std::move(frame), request.entries, request.every_slot);
}

// A report for each slot that has one, for a frame that carries a mark. A slot that has closed
// meanwhile has none.
void ShardImpl::SendReport(TableState& table, const ParkedRequest& request, uint16_t joined) {
  reply_entries_.clear();
  if (request.every_slot) {
    ForEachSlotOf(request, [&](uint32_t local) {
      const SlotRound& round = table.rounds[local];
      if (round.open() != Round{request.header.round} || round.summed() == nullptr) return;
      if (!round.summed()->something) return;
      reply_entries_.push_back(
          {slots_[local].id.value, sizeof(wire::SlotReport) / 4, slots_[local].position().packed});
    });
    std::sort(reply_entries_.begin(), reply_entries_.end(), [](auto& a, auto& b) { return a.slot < b.slot; });
  }
  wire::DataParts parts = RoundReply(table, request.header);
  parts.flags = wire::kFlagReport | wire::kFlagValuesChecked | joined;
  parts.entries = reply_entries_;
  if (!reply_entries_.empty()) {
    parts.owned = context_.pool().Get(reply_entries_.size() * sizeof(wire::SlotReport));
    std::byte* out = parts.owned.data();
    for (const wire::SlotEntry& entry : reply_entries_) {
      const wire::SlotReport& report = table.rounds[slots_.LocalOfAny(entry.slot)].summed()->report;
      std::memcpy(out, &report, sizeof(report));
      out += sizeof(report);
    }
  }
  SendRoundAnswer(request, wire::EncodeData(std::move(parts), context_.pool()));
}

wire::DataParts ShardImpl::RoundReply(const TableState& table, const wire::FrameHeader& request) const {
  wire::DataParts parts;
  parts.type = wire::FrameType::kRoundReply;
  parts.request_id = request.request_id;
  parts.incarnation = Incarnation{request.incarnation};
  parts.state_version = context_.version();
  parts.round = Round{request.round};
  parts.table = table.info.id;
  // Only gradients are mostly zeros.
  const WireFormat format = table.info.spec.wire;
  if (format != WireFormat::kTopK) parts.coding = wire::CodingOf(format);
  return parts;
}

}  // namespace cairn::server
