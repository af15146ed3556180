// Counts what happens in a run (deeds.h). Finds nothing wrong by itself: RunSeeds looks at the sums.
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "checkers.h"
#include "wire/data.h"

namespace cairn::sim {

namespace {

class Deeds final : public Checker {
 public:
  explicit Deeds(Context& context) : Checker("deeds", context) {}

  void OnPush(const PushEvent& e) override {
    const Part* part = context_.facts.Push(e.incarnation, e.slot, e.seq);
    if (e.outcome != server::Outcome::kApplied || part == nullptr) return;
    if (!part->mask.empty()) Add(Deed::kMasked);
    const bool once = part->op() == PushOp::kAssignOnce;
    if (IsSparse(e.table)) {
      if (part->op() != PushOp::kUpdate) Add(once ? Deed::kRowsAssignedOnce : Deed::kRowsAssigned);
    } else if (once) {
      Add(Deed::kAssignOnce);
    }
  }
  void OnStaged(const StagedEvent& e) override {
    const RoundSaid* said = context_.facts.Said(e.incarnation, e.table, e.round);
    if (said == nullptr || !said->parts.contains(e.slot.value)) return;
    if (!said->parts.at(e.slot.value).mask.empty()) Add(Deed::kMasked);
  }
  void OnClosed(const ShardName& shard, const server::CloseRecord& record) override {
    if (record.op == PushOp::kAssign)
      Add(record.outcome == Code::kUnavailable ? Deed::kNobodyAssigns : Deed::kAssignRound);
    if (IsSparse(record.table) && record.op == PushOp::kUpdate) {
      const TableSpec& spec = context_.tables.at(record.table.value).spec;
      if (StateColumns(spec.optimizer, spec.optimizer_flags) > 0) Add(Deed::kRowState);
      if (record.two_phase && !record.skipped) Add(Deed::kRowsTwoPhase);
    }
    if (!record.two_phase) return;
    Add(Deed::kTwoPhase);
    if (record.report.not_finite != 0) Add(Deed::kNotFinite);
    if (record.outcome == Code::kHyperMismatch) Add(Deed::kDecisionsDiffer);
    bool decided = false, died = false;
    for (const server::Contributor& c : record.contributors) {
      const bool lives = context_.shard_states[shard]->FindWorker(c.incarnation) != nullptr;
      const RoundSaid* said = context_.facts.Said(c.incarnation, record.table, record.round);
      decided |= lives && said != nullptr && said->decision;
      died |= c.live && !lives;
    }
    if (died) Add(Deed::kDeathInBetween);
    if (record.skipped) Add(decided ? Deed::kSkipped : Deed::kNobodyDecides);
  }
  void OnCallEnd(const CallEnd& end) override {
    if (end.status.ok() && end.told.all_joined) Add(Deed::kAllJoined);
    if (end.kind == CallEnd::Kind::kContribute && end.status.code() == Code::kDeadlineExceeded &&
        end.short_deadline) {
      Add(Deed::kContributedLate);
    }
  }
  void OnDataSent(const Actor& from, const Actor*, const wire::FrameHeader& header,
                  std::span<const std::byte> body) override {
    const std::pair<uint64_t, uint64_t> request{header.incarnation, header.request_id};
    if (from.role == wire::Role::kWorker) {
      if (header.type == wire::FrameType::kPull && AsksForKeys(header, body)) keys_asked_.insert(request);
      if (header.type == wire::FrameType::kPull && (header.flags & wire::kFlagAssigned) != 0)
        ++asked_[request];
    } else if (header.type == wire::FrameType::kPullReply) {
      auto it = asked_.find(request);
      if (it != asked_.end() && it->second > 1) Add(Deed::kAwaitedAssign);
      if (keys_asked_.contains(request)) Add(Deed::kKeysTold);
    }
  }

 private:
  void Add(Deed deed) { context_.deeds.Add(deed); }
  bool IsSparse(TableId table) const {
    return context_.tables.at(table.value).spec.kind == TableKind::kSparse;
  }
  static bool AsksForKeys(const wire::FrameHeader& header, std::span<const std::byte> body) {
    const auto pull = wire::DecodePull(header, body);
    return pull.ok() && !pull->entries.empty() && pull->entries[0].number == kKeyColumn;
  }
  std::set<std::pair<uint64_t, uint64_t>> keys_asked_;
  std::map<std::pair<uint64_t, uint64_t>, uint32_t> asked_;  // how often, by (incarnation, request)
};

}  // namespace

const char* Name(Deed deed) {
  switch (deed) {
    case Deed::kTwoPhase: return "closed as decided";
    case Deed::kSkipped: return "decided to skip";
    case Deed::kDeathInBetween: return "death before decision";
    case Deed::kNobodyDecides: return "nobody left to decide";
    case Deed::kDecisionsDiffer: return "decisions differ";
    case Deed::kContributedLate: return "contributed, too late";
    case Deed::kNotFinite: return "reported not finite";
    case Deed::kMasked: return "parts with a mask";
    case Deed::kAssignRound: return "round of assigns";
    case Deed::kNobodyAssigns: return "nobody assigns";
    case Deed::kAssignOnce: return "assign-once";
    case Deed::kAwaitedAssign: return "awaited an assign";
    case Deed::kAllJoined: return "all joined";
    case Deed::kRowsAssigned: return "rows assigned";
    case Deed::kRowsAssignedOnce: return "rows assigned once";
    case Deed::kRowState: return "round of rows with state";
    case Deed::kRowsTwoPhase: return "rows closed as decided";
    case Deed::kKeysTold: return "keys told";
  }
  return "?";
}

CheckerPtr MakeDeeds(Context& context) { return std::make_unique<Deeds>(context); }

}  // namespace cairn::sim
