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
    if (part->op() == PushOp::kAssignOnce) Add(Deed::kAssignOnce);
  }
  void OnStaged(const StagedEvent& e) override {
    const RoundSaid* said = context_.facts.Said(e.incarnation, e.table, e.round);
    if (said == nullptr || !said->parts.contains(e.slot.value)) return;
    if (!said->parts.at(e.slot.value).mask.empty()) Add(Deed::kMasked);
  }
  void OnClosed(const ShardName& shard, const server::CloseRecord& record) override {
    if (record.op == PushOp::kAssign)
      Add(record.outcome == Code::kUnavailable ? Deed::kNobodyAssigns : Deed::kAssignRound);
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
                  std::span<const std::byte>) override {
    const std::pair<uint64_t, uint64_t> request{header.incarnation, header.request_id};
    if (from.role == wire::Role::kWorker) {
      if (header.type == wire::FrameType::kPull && (header.flags & wire::kFlagAssigned) != 0)
        ++asked_[request];
    } else if (header.type == wire::FrameType::kPullReply) {
      auto it = asked_.find(request);
      if (it != asked_.end() && it->second > 1) Add(Deed::kAwaitedAssign);
    }
  }

 private:
  void Add(Deed deed) { context_.deeds.Add(deed); }
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
  }
  return "?";
}

CheckerPtr MakeDeeds(Context& context) { return std::make_unique<Deeds>(context); }

}  // namespace cairn::sim
