// What servers say about their slots, and the records that move owners (rules 43 and 45 to 47). All
// that can be done at one moment goes into one record, since the whole state is sent with each.
#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "scheduler/core/core.h"

namespace cairn::scheduler {
namespace {

constexpr uint64_t kUnknownBytes = UINT64_MAX;
// Records about owners that are in no hurry: not more often than this, and so seldom that states
// take no more than this many bytes a second in all.
constexpr int64_t kSmallestGapUs = 50'000;
// What ends a handover is in a hurry, since that slot stands still; but everybody is told of every
// record, so those that end at about the same time share one.
constexpr int64_t kSmallestHandoverGapUs = 4'000, kLargestHandoverGapUs = 100'000;
constexpr uint64_t kStateBytesPerSecond = uint64_t{1} << 30;
// Nor is more of them written to the log: with very many slots a record has megabytes.
constexpr uint64_t kLogBytesPerSecond = uint64_t{16} << 20;
// Sizes change all the time; they are looked at so often.
constexpr int64_t kLookAtBytesUs = 1'000'000;
constexpr int64_t kLookAtTrafficUs = 1'000'000;
// A backup that was too slow is given this long before it is tried again.
constexpr int64_t kRestUs = 30'000'000;

bool OwnsNothing(const wire::ClusterState& state, uint32_t server) {
  return std::none_of(state.slots.begin(), state.slots.end(), [&](const wire::SlotOwner& owner) {
    return owner.server == server || owner.FindBackup(static_cast<uint16_t>(server)) != nullptr;
  });
}

// While a view is pending owners change only for deaths, for what stands still until then (a new primary
// is asked for its report too: rule 50), and for what must not be promoted. Slowness can wait.
bool TakenWhilePending(const wire::SlotNews& news) {
  return news.kind != wire::SlotNews::kSlow;
}

bool AnySingle(const wire::ClusterState& state) {
  return std::any_of(state.slots.begin(), state.slots.end(),
                     [](const wire::SlotOwner& owner) { return InSyncOwners(owner) == 1; });
}

}  // namespace

struct SchedulerCore::OwnersRecord {
  bool any = false;
  std::map<uint32_t, uint32_t> slow, diverged;  // slots that a server was dropped from
  std::vector<uint32_t> slow_but_needed;        // servers
  std::vector<uint32_t> leaving;                // servers
  std::vector<uint32_t> kept;                   // servers that were to leave, and stay
  std::vector<wire::ServerInfo> left;
  size_t single = 0;
  uint32_t caught_up = 0;
  PlacementChange placed;
  TrafficSpread traffic;  // before slots were moved for it
};

void SchedulerCore::TakeOwnersReport(Live& node, uint32_t index, const wire::Heartbeat& heartbeat,
                                     int64_t now_us) {
  if (EndOverRuin(index, heartbeat.news)) return;
  if (heartbeat.leaving && !node.wants_to_leave) node.wants_to_leave = unsettled_ = true;
  // What a primary no longer says is no longer so.
  if (heartbeat.version >= node.news_held && (!heartbeat.news.empty() || !node.news.empty())) {
    node.news = heartbeat.news;
    node.news_held = heartbeat.version;
    unsettled_ = true;
  }
  const bool slow = std::ranges::any_of(heartbeat.news, [](const wire::SlotNews& news) {
    return news.kind == wire::SlotNews::kSlow;
  });
  node.slow.OnReport(slow, now_us, options_.heartbeat_us);
  node.hot_rows = heartbeat.hot_rows;
  node.sampled = heartbeat.sampled;
  node.stalled = heartbeat.stalled;
  node.stalled_us = now_us;
  if (!durable_.running()) return;
  slot_bytes_.resize(state().slots.size(), kUnknownBytes);
  for (const wire::SlotLoad& load : heartbeat.loads) {
    if (load.slot >= slot_bytes_.size() || state().slots[load.slot].server != index) continue;
    const uint64_t bytes = std::min(load.bytes, kUnknownBytes - 1);
    bytes_changed_ |= std::exchange(slot_bytes_[load.slot], bytes) != bytes;
    traffic_.Take(load, index, now_us);
  }
}

// A primary that can't go on with a slot: nobody else may have more of it, so nobody is tried.
bool SchedulerCore::EndOverRuin(uint32_t index, const std::vector<wire::SlotNews>& all) {
  if (durable_.over()) return false;
  const auto news = std::find_if(all.begin(), all.end(), [&](const wire::SlotNews& n) {
    return IsRuin(state(), index, n);
  });
  if (news == all.end()) return false;
  DurableState next = Next();
  FailJob(next, RuinText(*news));
  (void)Commit(std::move(next));
  return true;
}

void SchedulerCore::LookAtTraffic(int64_t now_us) {
  if (now_us - traffic_looked_us_ < kLookAtTrafficUs) return;
  traffic_looked_us_ = now_us;
  traffic_due_ = false;
  if (!durable_.running() || state().pending_view != ViewNumber(0)) return;
  const auto& slots = state().slots;
  const bool quiet = durable_.moving_from.empty() && AllServersHeard() &&
                     std::all_of(slots.begin(), slots.end(), [](const wire::SlotOwner& owner) {
                       return owner.heir == wire::kNoServer && InSyncOwners(owner) == owner.backups.size() + 1;
                     });
  traffic_due_ = traffic_.Due(state(), quiet, now_us);
}

int64_t SchedulerCore::OwnersGapUs() const {
  const uint64_t slots = state().slots.size() * (1 + state().replicas);
  const uint64_t bytes = slots * sizeof(wire::Backup);
  const auto gap = static_cast<int64_t>(live_.size() * bytes * 1'000'000 / kStateBytesPerSecond);
  const auto log_gap = static_cast<int64_t>(bytes * 1'000'000 / kLogBytesPerSecond);
  return std::max({kSmallestGapUs, gap, log_gap});
}

// Cheap: it is asked at every tick and after every event.
bool SchedulerCore::OwnersWorkWaits(int64_t now_us) const {
  if (durable_.over()) return false;
  const bool pending = state().pending_view != ViewNumber(0);
  bool work = false, urgent = false;
  for (const wire::ServerInfo& server : state().servers) {
    const Live* live = FindLive(server.incarnation);
    if (live == nullptr) continue;
    for (const wire::SlotNews& news : live->news) {
      work |= !pending || TakenWhilePending(news);
      urgent |= news.kind == wire::SlotNews::kHandedOver;
    }
    work |= !pending && live->wants_to_leave && !server.leaving;
  }
  if (!pending && durable_.running() && PlacementDue(now_us)) {
    work |= placed_version_ != state().version && AllServersHeard();
    const bool again = bytes_changed_ || avoided_;
    work |= again && now_us - placed_us_ >= kLookAtBytesUs && AllServersHeard();
    work |= traffic_due_;
  }
  const auto handover_gap_us =
      std::clamp<int64_t>(10 * static_cast<int64_t>(live_.size()), kSmallestHandoverGapUs, kLargestHandoverGapUs);
  urgent &= now_us - owners_record_us_ >= handover_gap_us;
  return urgent || (work && now_us - owners_record_us_ >= OwnersGapUs());
}

// Between two looks a slot may stand still whose handing over could end.
int64_t SchedulerCore::next_tick_us() const {
  const bool moving = std::any_of(state().slots.begin(), state().slots.end(), [](const auto& owner) {
    return owner.heir != wire::kNoServer || InSyncOwners(owner) <= owner.backups.size();
  });
  return moving ? OwnersGapUs() / 20 : kSmallestGapUs;
}

// Slots begin to move in waves: a push that waits for one wave is through before the next.
bool SchedulerCore::PlacementDue(int64_t now_us) const { return now_us - placing_us_ >= OwnersGapUs(); }

bool SchedulerCore::AdvanceOwners(int64_t now_us) {
  if (!OwnersWorkWaits(now_us)) return false;
  DurableState next = Next();
  OwnersRecord record;
  if (durable_.running()) ApplyNews(next, now_us, &record);
  const bool placing = state().pending_view == ViewNumber(0) && PlacementDue(now_us);
  if (placing) {
    placing_us_ = now_us;
    MarkLeaving(next, &record);
    if (durable_.running()) PlaceSlots(next, now_us, &record);
    LetEmptyGo(next, &record);
    placed_version_ = state().version;
  }
  LogSlowButNeeded(record);
  if (!record.any) return false;
  for (size_t slot = 0; slot < next.state.slots.size(); ++slot)
    if (InSyncOwners(next.state.slots[slot]) == 1 && InSyncOwners(state().slots[slot]) > 1) ++record.single;
  if (!Commit(std::move(next))) return false;
  owners_record_us_ = now_us;
  // What was placed may make more possible; what was not needs another event.
  if (!record.placed.any() && placing) placed_version_ = state().version;
  copies_done_ += record.caught_up;
  LogOwners(record);
  for (const wire::ServerInfo& server : record.left) {  // it hears this before a state without it
    auto it = live_.find(server.incarnation);
    if (it == live_.end()) continue;
    const ConnId conn = it->second.conn;
    live_.erase(it);
    hearing_.Forget(server.incarnation);
    if (conn == ConnId(0)) continue;
    bound_.erase(conn);
    Send(conn, wire::LeaveReply{server.incarnation});
  }
  return true;
}

void SchedulerCore::ApplyNews(DurableState& next, int64_t now_us, OwnersRecord* record) {
  const bool pending = state().pending_view != ViewNumber(0);
  for (const wire::ServerInfo& server : state().servers) {
    Live* live = FindLive(server.incarnation);
    if (live == nullptr || live->news.empty()) continue;
    std::vector<wire::SlotNews> later;
    for (const wire::SlotNews& news : live->news) {
      // The same while the primary itself is suspect: the backup may be all that is left.
      const bool drops = news.kind == wire::SlotNews::kSlow || news.kind == wire::SlotNews::kDiverged;
      const bool suspect = drops && !HeardLately(server.index, now_us);
      const bool hasty = news.kind == wire::SlotNews::kSlow && !live->slow.counts();
      if (suspect || hasty || (pending && !TakenWhilePending(news))) {
        later.push_back(news);
        continue;
      }
      const NewsEffect effect = TakeNews(next, server.index, live->news_held, news);
      if (effect == NewsEffect::kNotAllowed) record->slow_but_needed.push_back(news.server);
      if (effect != NewsEffect::kTaken) continue;
      record->any = true;
      record->caught_up += news.kind == wire::SlotNews::kCaughtUp ? 1 : 0;
      if (news.kind == wire::SlotNews::kDiverged) ++record->diverged[news.server];
      if (news.kind != wire::SlotNews::kSlow) continue;
      ++record->slow[news.server];
      if (const wire::ServerInfo* slow = state().FindServer(news.server))
        if (Live* rests = FindLive(slow->incarnation)) rests->rest_until_us = now_us + kRestUs;
    }
    live->news = std::move(later);
  }
}

void SchedulerCore::MarkLeaving(DurableState& next, OwnersRecord* record) {
  for (wire::ServerInfo& server : next.state.servers) {
    const Live* live = FindLive(server.incarnation);
    if (live == nullptr || !live->wants_to_leave || server.leaving) continue;
    server.leaving = record->any = true;
    record->leaving.push_back(server.index);
    // It is not to be replaced. (While the job is forming it is: nobody has done without it yet.)
    if (next.running() && next.state.expected_servers > 1)
      ExpectServers(next, next.state.expected_servers - 1);
  }
  // The only one that `cairn scale` has left, perhaps: another one takes its place, or nobody could go.
  if (!record->leaving.empty() && StayingServers(next.state) == 0) record->kept = WantAgain(next, 1);
}

bool SchedulerCore::AllServersHeard() const {
  return std::all_of(state().servers.begin(), state().servers.end(), [&](const wire::ServerInfo& server) {
    const Live* live = FindLive(server.incarnation);
    return live != nullptr && live->heard;
  });
}

// What is not known counts as much as the others do on average.
SlotBytes SchedulerCore::KnownBytes() const {
  double sum = 0;
  size_t known = 0;
  for (uint64_t bytes : slot_bytes_) {
    if (bytes == kUnknownBytes) continue;
    sum += static_cast<double>(bytes);
    ++known;
  }
  if (known == 0) return {};
  SlotBytes all = slot_bytes_;
  std::replace(all.begin(), all.end(), kUnknownBytes,
               static_cast<uint64_t>(sum / static_cast<double>(known)));
  return all;
}

PlacementLimits SchedulerCore::Limits(int64_t now_us) const {
  PlacementLimits limits;
  limits.avoid = Suspects(now_us);
  for (const wire::ServerInfo& server : state().servers)
    if (const Live* live = FindLive(server.incarnation); live != nullptr && now_us < live->rest_until_us)
      limits.avoid.push_back(server.index);
  return limits;
}

// A copy that does not fit kills the server that gets it, and then the next one.
void SchedulerCore::AvoidThoseWithoutMemory(const SlotBytes& bytes, PlacementLimits* limits) {
  const auto largest = std::max_element(bytes.begin(), bytes.end());
  if (largest == bytes.end()) return;
  const uint64_t under_way = std::max(*largest * std::min(limits->copies_per_server, kFewMoves),
                                      limits->copies_per_server > kFewMoves ? kLightMovesBytes : 0);
  for (uint32_t index : WithoutRoom(MemoryOfServers(), under_way)) {
    limits->avoid.push_back(index);
    Live* live = FindLive(state().FindServer(index)->incarnation);
    if (!std::exchange(live->told_full, true))
      log_("server " + std::to_string(index) + " has only " + Bytes(live->stats.memory.bytes) +
           " of memory left (" + Words(live->stats.memory.kind) + "): no partitions are copied to it");
  }
}

void SchedulerCore::PlaceSlots(DurableState& next, int64_t now_us, OwnersRecord* record) {
  if (!AllServersHeard()) return;  // a restarted scheduler does not know the sizes yet
  placed_us_ = now_us;
  bytes_changed_ = false;
  const SlotBytes bytes = KnownBytes();
  PlacementLimits limits = Limits(now_us);
  limits.copies_per_server = limits.handovers_per_server = MovesAtATime(state().slots.size(), bytes);
  AvoidThoseWithoutMemory(bytes, &limits);
  avoided_ = !limits.avoid.empty();
  const bool for_traffic = std::exchange(traffic_due_, false);
  const SlotTraffic traffic = for_traffic ? traffic_.Rates(now_us) : SlotTraffic();
  record->placed = Place(next, bytes, limits, for_traffic ? &traffic : nullptr);
  record->any |= record->placed.any();
  if (for_traffic && record->placed.any() == !record->placed.for_traffic.empty()) {
    if (!record->placed.for_traffic.empty()) record->traffic = SpreadOf(state(), traffic);
    traffic_.Moved(record->placed.for_traffic, now_us);
  }
  if (record->placed.copies > 0 && CopyingSlots(state()) == 0) copies_done_ = 0;  // a new wave
}

void SchedulerCore::LetEmptyGo(DurableState& next, OwnersRecord* record) {
  for (const wire::ServerInfo& server : std::vector<wire::ServerInfo>(next.state.servers)) {
    if (!server.leaving || !OwnsNothing(next.state, server.index)) continue;
    RemoveServer(next, server.incarnation, NodeFate::kLeft);
    record->left.push_back(server);
    record->any = true;
  }
}

void SchedulerCore::LogSlowButNeeded(const OwnersRecord& record) {
  for (uint32_t server : record.slow_but_needed) {
    const wire::ServerInfo* info = state().FindServer(server);
    Live* live = info == nullptr ? nullptr : FindLive(info->incarnation);
    if (live != nullptr && !std::exchange(live->told_slow, true))
      log_("alarm: server " + std::to_string(server) + " is too slow as a backup, but with --min-in-sync " +
           std::to_string(state().min_in_sync) + " it can't be dropped: pushes wait for it");
  }
}

void SchedulerCore::LogOwners(const OwnersRecord& record) {
  std::string why;
  for (const auto& [server, slots] : record.slow) {
    log_("alarm: server " + std::to_string(server) + " is too slow as a backup: it is dropped from " +
         Count(slots, "partition"));
    why = "server " + std::to_string(server) + " is too slow";
  }
  for (const auto& [server, slots] : record.diverged) {
    log_("alarm: server " + std::to_string(server) + " can't follow the primary any more in " +
         Count(slots, "partition") + ": it is dropped there and copied to anew");
    why = "server " + std::to_string(server) + " differs";
  }
  if (const size_t moved = record.placed.for_traffic.size(); moved > 0) {
    char times[32];
    std::snprintf(times, sizeof times, "%.2f", record.traffic.of_mean());
    log_("server " + std::to_string(record.traffic.server) + " thread " +
         std::to_string(record.traffic.thread) + " does " + times + " times the work of the mean: " +
         Count(moved, "partition") + (moved == 1 ? " changes its owner" : " change their owners"));
  }
  if (state().replicas > 1 && WantedOwners(state()) > 1) AlarmIfSingle(record.single, why);
  for (uint32_t server : record.leaving)
    log_("server " + std::to_string(server) +
         (StayingServers(state()) > 0 ? " wants to leave: its partitions move to the others"
                                      : " wants to leave, but no other server would be left to take the "
                                        "partitions"));
  for (uint32_t server : record.kept)
    log_("server " + std::to_string(server) + " was to go and stays: nobody else is left to take the partitions");
  for (const wire::ServerInfo& server : record.left)
    log_("server " + std::to_string(server.index) + " (" + ToString(server.endpoint) +
         ") has handed everything over and leaves");
  if (const size_t staying = StayingServers(state()); !record.left.empty() && staying < state().replicas)
    log_("alarm: with " + Count(staying, "server") + " each partition has " + std::to_string(staying) +
         (staying == 1 ? " copy" : " copies") + ", " + std::to_string(state().replicas) + " are wanted");
  if (single_ && !AnySingle(state())) {
    single_ = false;
    log_("every partition has more than one owner in sync again");
  }
}

}  // namespace cairn::scheduler
