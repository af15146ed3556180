#include "scheduler/core/moves.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "scheduler/rules/job_end.h"
#include "scheduler/rules/owners.h"
#include "scheduler/rules/user_text.h"

namespace cairn::scheduler {
namespace {

// Records about owners that are in no hurry: not more often than this, and so seldom that states
// take no more than this many bytes a second in all.
constexpr int64_t kSmallestGapUs = 50'000;
// What ends a handover is in a hurry, since that slot stands still; but everybody is told of every
// record, so those that end at about the same time share one.
constexpr int64_t kSmallestHandoverGapUs = 4'000, kLargestHandoverGapUs = 100'000;
constexpr uint64_t kStateBytesPerSecond = uint64_t{1} << 30;
// Nor is more of them written to the log: with very many slots a record has megabytes.
constexpr uint64_t kLogBytesPerSecond = uint64_t{16} << 20;

bool OwnsNothing(const wire::ClusterState& state, uint32_t server) {
  return std::none_of(state.slots.begin(), state.slots.end(), [&](const wire::SlotOwner& owner) {
    return owner.server == server || owner.FindBackup(static_cast<uint16_t>(server)) != nullptr;
  });
}

}  // namespace

struct Moves::Record {
  bool any = false;
  OwnerNews::Applied news;
  std::vector<uint32_t> leaving;  // servers
  std::vector<uint32_t> kept;     // servers that were to leave, and stay
  std::vector<wire::ServerInfo> left;
  size_t single = 0;
  Placer::Placed placed;
};

bool Moves::EndOverRuin(uint32_t server, const std::vector<wire::SlotNews>& all) {
  if (journal_.durable().over()) return false;
  const auto news = std::find_if(
      all.begin(), all.end(), [&](const wire::SlotNews& n) { return IsRuin(journal_.state(), server, n); });
  if (news == all.end()) return false;
  DurableState next = journal_.Next();
  FailJob(next, RuinText(*news));
  (void)journal_.Commit(std::move(next));
  return true;
}

int64_t Moves::GapUs() const {
  const wire::ClusterState& state = journal_.state();
  const uint64_t slots = state.slots.size() * (1 + state.replicas);
  const uint64_t bytes = slots * sizeof(wire::Backup);
  const auto gap =
      static_cast<int64_t>(connections_.nodes().size() * bytes * 1'000'000 / kStateBytesPerSecond);
  const auto log_gap = static_cast<int64_t>(bytes * 1'000'000 / kLogBytesPerSecond);
  return std::max({kSmallestGapUs, gap, log_gap});
}

bool Moves::WorkWaits(int64_t now_us) const {
  if (journal_.durable().over()) return false;
  const bool pending = journal_.state().pending_view != ViewNumber(0);
  OwnerNews::Work work = news_.Waiting(journal_.state());
  work.any |= !pending && OneCouldStay(journal_.state(), Wishes(now_us));
  if (!pending && journal_.durable().running() && placer_.Due(now_us, GapUs()))
    work.any |= placer_.WorkWaits(now_us);
  const auto handover_gap_us = std::clamp<int64_t>(10 * static_cast<int64_t>(connections_.nodes().size()),
                                                   kSmallestHandoverGapUs, kLargestHandoverGapUs);
  work.urgent &= now_us - recorded_us_ >= handover_gap_us;
  return work.urgent || (work.any && now_us - recorded_us_ >= GapUs());
}

int64_t Moves::next_tick_us() const {
  const auto& slots = journal_.state().slots;
  const bool moving = std::any_of(slots.begin(), slots.end(), [](const wire::SlotOwner& owner) {
    return owner.heir != wire::kNoServer || InSyncOwners(owner) <= owner.backups.size();
  });
  return moving ? GapUs() / 20 : kSmallestGapUs;
}

bool Moves::Advance(int64_t now_us) {
  if (!WorkWaits(now_us)) return false;
  const bool running = journal_.durable().running();
  DurableState next = journal_.Next();
  Record record;
  if (running) record.news = news_.Apply(journal_.state(), next, now_us);
  record.any = record.news.any;
  const bool placing = journal_.state().pending_view == ViewNumber(0) && placer_.Due(now_us, GapUs());
  if (placing) {
    placer_.NoteWave(now_us);
    MarkLeaving(next, now_us, &record);
    if (running) record.placed = placer_.Place(next, now_us);
    record.any |= record.placed.change.any();
    LetEmptyGo(next, &record);
    placer_.NoteDone();
  }
  LogSlowButNeeded(record.news.slow_but_needed);
  if (!record.any) return false;
  record.single = NewlySingle(journal_.state(), next.state);
  if (!journal_.Commit(std::move(next))) return false;
  recorded_us_ = now_us;
  // What was placed may make more possible; what was not needs another event.
  if (!record.placed.change.any() && placing) placer_.NoteDone();
  placer_.NoteCaughtUp(record.news.caught_up);
  LogRecord(record);
  for (const wire::ServerInfo& server : record.left)  // it hears this before a state without it
    connections_.Dismiss(server.incarnation, wire::LeaveReply{server.incarnation});
  return true;
}

ServerWishes Moves::Wishes(int64_t now_us) const {
  return {.wants_to_leave =
              [this](const wire::ServerInfo& server) { return news_.WantsToLeave(server.incarnation); },
          .heard_lately =
              [this, now_us](const wire::ServerInfo& server) {
                return presence_.ServerHeardLately(journal_.state(), server.index, now_us);
              }};
}

void Moves::MarkLeaving(DurableState& next, int64_t now_us, Record* record) const {
  for (wire::ServerInfo& server : next.state.servers) {
    if (!news_.WantsToLeave(server.incarnation) || server.leaving) continue;
    server.leaving = record->any = true;
    record->leaving.push_back(server.index);
    // It is not to be replaced. (While the job is forming it is: nobody has done without it yet.)
    if (next.running() && next.state.expected_servers > 1)
      ExpectServers(next, next.state.expected_servers - 1, replicas_);
  }
  // Those that `cairn scale` has left are too few now, or have died: others take their place, or nobody could
  // go.
  const ServerWishes wishes = Wishes(now_us);
  if (!OneCouldStay(next.state, wishes)) return;
  record->kept = KeepServers(next, LeastToStay(next.state), wishes);
  record->any = true;
  if (const uint32_t staying = StayingServers(next.state); next.state.expected_servers < staying)
    ExpectServers(next, staying, replicas_);
}

void Moves::LetEmptyGo(DurableState& next, Record* record) const {
  for (const wire::ServerInfo& server : std::vector<wire::ServerInfo>(next.state.servers)) {
    if (!server.leaving || !OwnsNothing(next.state, server.index)) continue;
    RemoveServer(next, server.incarnation, NodeFate::kLeft);
    record->left.push_back(server);
    record->any = true;
  }
}

void Moves::LogSlowButNeeded(const std::vector<uint32_t>& servers) {
  const wire::ClusterState& state = journal_.state();
  for (uint32_t server : servers) {
    const wire::ServerInfo* info = state.FindServer(server);
    if (info != nullptr && news_.NoteSlowButNeeded(info->incarnation))
      log_("alarm: server " + std::to_string(server) + " is too slow as a backup, but with --min-in-sync " +
           std::to_string(state.min_in_sync) + " it can't be dropped: pushes wait for it");
  }
}

void Moves::LogRecord(const Record& record) {
  const wire::ClusterState& state = journal_.state();
  std::string why;
  for (const auto& [server, slots] : record.news.slow) {
    log_("alarm: server " + std::to_string(server) + " is too slow as a backup: it is dropped from " +
         Count(slots, "partition"));
    why = "server " + std::to_string(server) + " is too slow";
  }
  for (const auto& [server, slots] : record.news.diverged) {
    log_("alarm: server " + std::to_string(server) + " can't follow the primary any more in " +
         Count(slots, "partition") + ": it is dropped there and copied to anew");
    why = "server " + std::to_string(server) + " differs";
  }
  if (const size_t moved = record.placed.change.for_traffic.size(); moved > 0) {
    const TrafficSpread& traffic = record.placed.traffic;
    char times[32];
    std::snprintf(times, sizeof times, "%.2f", traffic.of_mean());
    log_("server " + std::to_string(traffic.server) + " thread " + std::to_string(traffic.thread) + " does " +
         times + " times the work of the mean: " + Count(moved, "partition") +
         (moved == 1 ? " changes its owner" : " change their owners"));
  }
  if (state.replicas > 1 && WantedOwners(state) > 1) single_owners_.Alarm(state, record.single, why);
  for (uint32_t server : record.leaving)
    log_("server " + std::to_string(server) +
         (StayingServers(state) > 0 ? " wants to leave: its partitions move to the others"
                                    : " wants to leave, but no other server would be left to take the "
                                      "partitions"));
  for (uint32_t server : record.kept)
    log_("server " + std::to_string(server) +
         " was to go and stays: nobody else is left to take the partitions");
  for (const wire::ServerInfo& server : record.left)
    log_("server " + std::to_string(server.index) + " (" + ToString(server.endpoint) +
         ") has handed everything over and leaves");
  if (const size_t staying = StayingServers(state); !record.left.empty() && staying < state.replicas)
    log_("alarm: with " + Count(staying, "server") + " each partition has " + std::to_string(staying) +
         (staying == 1 ? " copy" : " copies") + ", " + std::to_string(state.replicas) + " are wanted");
  single_owners_.ClearIfOver(state);
}

}  // namespace cairn::scheduler
