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
  void OnOperation(const Op& op) override {
    if (!context_.history.IsLine(op.slot, op.position.epoch())) Add(Deed::kDeposed);
  }
  void OnPromoted(const ShardName&, SlotId slot, uint64_t epoch, Position held) override {
    if (epoch > 1 && context_.history.End(slot).index() > held.index()) Add(Deed::kLineCut);
  }
  void OnDurable(const wire::ClusterState& state) override {
    for (size_t s = 0; s < before_.slots.size() && s < state.slots.size(); ++s)
      Compare(before_, before_.slots[s], state, state.slots[s]);
    before_ = state;
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
    if (end.status.ok() && end.kind == CallEnd::Kind::kPushPull) Add(Deed::kPushPull);
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
  void Add(Deed deed) {
    if (!context_.replaying) context_.deeds.Add(deed);
  }
  void Compare(const wire::ClusterState& was, const wire::SlotOwner& old, const wire::ClusterState& is,
               const wire::SlotOwner& owner) {
    if (owner.epoch != old.epoch)
      Add(old.heir == owner.server && Lives(was, is, old.server) ? Deed::kHandedOver : Deed::kPromoted);
    for (const wire::Backup& backup : owner.backups) {
      const wire::Backup* then = old.FindBackup(backup.server);
      if (backup.in_sync && then != nullptr && !then->in_sync) Add(Deed::kCopied);
    }
    for (const wire::Backup& backup : old.backups) {
      const bool gone = owner.server != backup.server && owner.FindBackup(backup.server) == nullptr;
      if (gone && backup.in_sync && owner.backups.size() < old.backups.size() && owner.epoch == old.epoch &&
          Lives(was, is, backup.server) && !is.FindServer(backup.server)->leaving &&
          old.backups.size() < is.replicas) {
        Add(Deed::kSlowDropped);
      }
    }
  }
  static bool Lives(const wire::ClusterState& was, const wire::ClusterState& is, uint32_t index) {
    const wire::ServerInfo *a = was.FindServer(index), *b = is.FindServer(index);
    return a != nullptr && b != nullptr && a->incarnation == b->incarnation;
  }
  bool IsSparse(TableId table) const {
    return context_.tables.at(table.value).spec.kind == TableKind::kSparse;
  }
  static bool AsksForKeys(const wire::FrameHeader& header, std::span<const std::byte> body) {
    const auto pull = wire::DecodePull(header, body);
    return pull.ok() && !pull->entries.empty() && pull->entries[0].number == kKeyColumn;
  }
  wire::ClusterState before_;
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
    case Deed::kServerJoins: return "server joins";
    case Deed::kDrain: return "server wants to leave";
    case Deed::kServerLeaves: return "server leaves";
    case Deed::kScale: return "asked for n servers";
    case Deed::kPromoted: return "slots promoted";
    case Deed::kHandedOver: return "slots handed over";
    case Deed::kCopied: return "backups copied";
    case Deed::kSlowDropped: return "living backups dropped";
    case Deed::kLineCut: return "uncommitted part lost";
    case Deed::kDeposed: return "acts without a mandate";
    case Deed::kNewLeader: return "new leading scheduler";
    case Deed::kMovedForTraffic: return "moved for traffic";
    case Deed::kDamageFound: return "damaged copy found";
    case Deed::kEndTold: return "told that a process ended";
    case Deed::kResigned: return "scheduler resigns";
    case Deed::kLastWord: return "scheduler ends in mid-telling";
    case Deed::kStatePassed: return "state passed on";
    case Deed::kRowState: return "round of rows with state";
    case Deed::kRowsTwoPhase: return "rows closed as decided";
    case Deed::kKeysTold: return "keys told";
    case Deed::kHurtWhileDraining: return "hurt while one leaves";
    case Deed::kHurtWhileJoining: return "hurt while one joins";
    case Deed::kHurtWhileCopying: return "hurt while one is copied";
    case Deed::kManyNodes: return "jobs of many nodes";
    case Deed::kCodedHalf: return "frames in 16 bits";
    case Deed::kCodedNonZero: return "frames without zeros";
    case Deed::kCodedLz4: return "frames in lz4";
    case Deed::kRestSent: return "top-k: the rest sent";
    case Deed::kChoiceDropped: return "top-k: push refused";
    case Deed::kDifferenceTold: return "states told as differences";
    case Deed::kSplitPush: return "pushes in parts";
    case Deed::kLargeAlone: return "large push alone";
    case Deed::kPushPull: return "push-pulls";
    case Deed::kPulledAgain: return "pulled again after a push";
    case Deed::kTripOfTables: return "trips of several tables";
    case Deed::kAtTheBound: return "bounded read at its bound";
    case Deed::kClockBeginsLate: return "clock that begins late";
    case Deed::kClosed: return "client closed in mid-call";
    case Deed::kClosedInTrip: return "closed in a trip";
    case Deed::kClosedWaiting: return "closed while one waits";
    case Deed::kClosedBetweenParts: return "closed between parts";
    case Deed::kCount: break;
  }
  return "?";
}

const char* Name(bounds::Bound bound) {
  static constexpr const char* kNames[] = {
#define CAIRN_BOUND(name, text) text,
#include "base/bounds.inc"
#undef CAIRN_BOUND
  };
  return kNames[static_cast<size_t>(bound)];
}

CheckerPtr MakeDeeds(Context& context) { return std::make_unique<Deeds>(context); }

}  // namespace cairn::sim
