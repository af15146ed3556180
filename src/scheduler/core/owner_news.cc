#include "scheduler/core/owner_news.h"

#include <algorithm>
#include <utility>

#include "scheduler/rules/owners.h"

namespace cairn::scheduler {
namespace {

// A backup that was too slow is given this long before it is tried again.
constexpr int64_t kRestUs = 30'000'000;

// While a view is pending owners change only for deaths, for what stands still until then (a new primary
// is asked for its report too: rule 50), and for what must not be promoted. Slowness can wait.
bool TakenWhilePending(const wire::SlotNews& news) { return news.kind != wire::SlotNews::kSlow; }

}  // namespace

bool OwnerNews::Take(Incarnation server, const wire::Heartbeat& heartbeat, int64_t now_us) {
  Node& node = nodes_[server];
  bool something = false;
  if (heartbeat.leaving && !node.wants_to_leave) node.wants_to_leave = something = true;
  // What a primary no longer says is no longer so.
  if (heartbeat.version >= node.held && (!heartbeat.news.empty() || !node.news.empty())) {
    node.news = heartbeat.news;
    node.held = heartbeat.version;
    something = true;
  }
  const bool slow = std::ranges::any_of(
      heartbeat.news, [](const wire::SlotNews& news) { return news.kind == wire::SlotNews::kSlow; });
  node.slow.OnReport(slow, now_us, heartbeat_us_);
  return something;
}

OwnerNews::Work OwnerNews::Waiting(const wire::ClusterState& state) const {
  const bool pending = state.pending_view != ViewNumber(0);
  Work work;
  for (const wire::ServerInfo& server : state.servers) {
    const auto it = nodes_.find(server.incarnation);
    if (it == nodes_.end()) continue;
    for (const wire::SlotNews& news : it->second.news) {
      work.any |= !pending || TakenWhilePending(news);
      work.urgent |= news.kind == wire::SlotNews::kHandedOver;
    }
    work.any |= !pending && it->second.wants_to_leave && !server.leaving;
  }
  return work;
}

OwnerNews::Applied OwnerNews::Apply(const wire::ClusterState& state, DurableState& next, int64_t now_us) {
  Applied applied;
  const bool pending = state.pending_view != ViewNumber(0);
  for (const wire::ServerInfo& server : state.servers) {
    const auto it = nodes_.find(server.incarnation);
    if (it == nodes_.end() || it->second.news.empty()) continue;
    Node& node = it->second;
    std::vector<wire::SlotNews> later;
    for (const wire::SlotNews& news : node.news) {
      // The same while the primary itself is suspect: the backup may be all that is left.
      const bool drops = news.kind == wire::SlotNews::kSlow || news.kind == wire::SlotNews::kDiverged;
      const bool suspect = drops && !presence_.ServerHeardLately(state, server.index, now_us);
      const bool hasty = news.kind == wire::SlotNews::kSlow && !node.slow.counts();
      if (suspect || hasty || (pending && !TakenWhilePending(news))) {
        later.push_back(news);
        continue;
      }
      const NewsEffect effect = TakeNews(next, server.index, node.held, news);
      if (effect == NewsEffect::kNotAllowed) applied.slow_but_needed.push_back(news.server);
      if (effect != NewsEffect::kTaken) continue;
      applied.any = true;
      applied.caught_up += news.kind == wire::SlotNews::kCaughtUp ? 1 : 0;
      if (news.kind == wire::SlotNews::kDiverged) ++applied.diverged[news.server];
      if (news.kind != wire::SlotNews::kSlow) continue;
      ++applied.slow[news.server];
      if (const wire::ServerInfo* slow = state.FindServer(news.server))
        nodes_[slow->incarnation].rest_until_us = now_us + kRestUs;
    }
    node.news = std::move(later);
  }
  return applied;
}

bool OwnerNews::WantsToLeave(Incarnation server) const {
  const auto it = nodes_.find(server);
  return it != nodes_.end() && it->second.wants_to_leave;
}

bool OwnerNews::Rests(Incarnation server, int64_t now_us) const {
  const auto it = nodes_.find(server);
  return it != nodes_.end() && now_us < it->second.rest_until_us;
}

bool OwnerNews::NoteSlowButNeeded(Incarnation server) {
  return !std::exchange(nodes_[server].told_slow, true);
}

}  // namespace cairn::scheduler
