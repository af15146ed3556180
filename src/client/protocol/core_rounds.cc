// What is special about rounds: whose turn it is in the two phases, what the answers tell, and that
// a round of which something went wrong does not stay open (docs/internals/consistency.md, rules 32 to 35).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "client/protocol/core.h"
#include "client/partition/partition.h"

namespace cairn::client {

// A round that is open for a decision is this worker's only one.
Status Core::CheckTurn(const Request& request) {
  using Phase = TableOrder::Phase;
  const TableOrder& order = *OrderOf(request.table);
  const bool decides = request.kind == Request::Kind::kDecide;
  if (decides == order.may_decide() && (!request.joined || !decides)) return Status::Ok();
  const std::string name = TableName(request.table);
  const std::string round = "round " + std::to_string(order.open_round().value) + " of " + name;
  const auto wrong = [](std::string text) {
    return Status(Code::kInvalidArgument, std::move(text));
  };
  if (!decides) {
    const bool expired = order.phase() == Phase::kContributing;
    return wrong(round + " waits for Decide" +
                 (expired ? ": its Contribute was not finished in time" : ""));
  }
  if (!order.may_decide()) {
    switch (order.phase()) {
      case Phase::kContributing:
        return wrong(round + " is not summed up yet: wait for its Contribute");
      case Phase::kDeciding: return wrong(round + " is being decided already");
      default: return wrong(name + " has no round to decide: Contribute comes first");
    }
  }
  // The others would wait for the decision of one who has not joined.
  if (request.joined && !order.joined()) {
    return wrong(round +
                 " was contributed to: this worker decides like the others, it can't join now");
  }
  return Status::Ok();
}

ShardLink::Verdict Core::TakeReport(Record& record, const Outgoing& frame, const Answer& answer,
                                    const wire::ValuesView& values) {
  const ShardPart& part = record.request.parts[frame.part];
  const std::vector<wire::SlotOwner>& owners = scheduler_.state()->slots;
  const bool same_map = SameMapAt(answer.made_under);
  if (values.values.size() != values.entries.size() * sizeof(wire::SlotReport))
    return ShardLink::Verdict::kMalformed;
  for (const wire::SlotEntry& entry : values.entries) {
    if (entry.slot >= owners.size()) return ShardLink::Verdict::kMalformed;
    const wire::SlotOwner& owner = owners[entry.slot];
    const bool theirs = owner.server == part.server && owner.thread == part.thread;
    if (same_map && !theirs) return ShardLink::Verdict::kMalformed;
  }
  const std::byte* from = values.values.data();
  for (const wire::SlotEntry& entry : values.entries) {
    wire::SlotReport report;
    std::memcpy(&report, from, sizeof(report));
    from += sizeof(report);
    record.reports.emplace_back(entry.slot, report);
  }
  return ShardLink::Verdict::kTaken;
}

// The sum is taken in the order of slots, so that every worker gets the same bits; of several
// reports of a slot the last one counts.
void Core::TellRoundInfo(const Record& record) const {
  if (record.ended || record.request.info == nullptr || !record.outcome.ok()) return;
  auto reports = record.reports;
  std::stable_sort(reports.begin(), reports.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  RoundInfo info;
  for (size_t i = 0; i < reports.size(); ++i) {
    const auto& [slot, report] = reports[i];
    if (i + 1 < reports.size() && reports[i + 1].first == slot) continue;
    info.sum_squares += report.sum_squares;
    info.finite &= report.not_finite == 0;
  }
  info.finite &= std::isfinite(info.sum_squares);
  info.all_joined = record.all_joined;
  *record.request.info = info;
}

void Core::FinishRound(uint64_t id, const Record& record, int64_t now_us) {
  ++rounds_;
  if (observer_ != nullptr) {
    observer_->OnRoundAcknowledged(incarnation(), record.request.table, record.round,
                                   record.outcome);
  }
  if (TableOrder* order = OrderOf(record.request.table)) order->Ended(id);
  ReleaseRounds(record.request.table, now_us);
}

void Core::FinishContribute(uint64_t id, const Record& record, int64_t now_us) {
  TableOrder* const order = OrderOf(record.request.table);
  if (order == nullptr) return;
  // Decided after its deadline; the decision's answers may even have come first.
  const bool decided = order->phase() != TableOrder::Phase::kContributing;
  const bool expired = order->may_decide();  // its caller has been told to decide
  order->Ended(id);
  if (decided) return ReleaseRounds(record.request.table, now_us);
  if (!record.outcome.ok() && !expired) SkipRound(record.request.table, now_us);
}

// A Contribute that failed leaves nothing to decide to its caller. Where the round is closed (the
// others have seen the same) this decision changes nothing; where it is not, nobody waits for it.
void Core::SkipRound(TableId table, int64_t now_us) {
  const std::shared_ptr<const wire::ClusterState> state = scheduler_.state();
  const wire::TableInfo* info = state->FindTable(table);
  PartitionInput input{.state = state.get(), .table = info};
  input.phase = RoundPhase::kDecide;
  input.skip = true;
  Result<Request> skip(Code::kNotFound, "dropped");
  if (info != nullptr) skip = PrepareRound(input, pool_);
  if (!skip.ok()) {
    OrderOf(table)->Close();
    return ReleaseRounds(table, now_us);
  }
  Record record;
  record.request = std::move(*skip);
  record.request.deadline_us = std::numeric_limits<int64_t>::max();
  record.begun_us = now_us;
  record.parks = true;
  const uint64_t id = next_request_++;
  deadlines_.emplace(record.request.deadline_us, id);
  requests_.emplace(id, std::move(record));
  Release(id, OrderOf(table)->Decide(id), now_us);
}

}  // namespace cairn::client
