#include "client/links/links.h"

#include <algorithm>
#include <utility>

namespace cairn::client {

std::unique_ptr<ShardLink> Links::Make(const wire::ClusterState& state, const wire::ServerInfo& server,
                                       uint16_t thread, Incarnation worker) {
  ShardLink::Peer peer;
  peer.server = static_cast<uint16_t>(server.index);
  peer.thread = thread;
  peer.endpoint = server.endpoint;
  peer.server_incarnation = server.incarnation;
  peer.cluster_id = state.cluster_id;
  peer.worker = worker;
  return std::make_unique<ShardLink>(std::move(peer), options_, network_, pool_, book_, by_conn_, listener_);
}

Links::Followed Links::Follow(const wire::ClusterState& state, Incarnation worker) {
  Followed followed;
  std::vector<Place> places;
  std::vector<Run> first(state.servers.empty() ? 0 : state.servers.back().index + 1);
  for (const wire::ServerInfo& server : state.servers) {
    first[server.index] = {places.size(), server.threads};
    for (uint32_t thread = 0; thread < server.threads; ++thread) {
      Place& place = places.emplace_back();
      const size_t at = IndexOf(server.index, thread);
      if (at < places_.size() && places_[at].link != nullptr &&
          places_[at].link->peer().server_incarnation == server.incarnation) {
        place.link = std::move(places_[at].link);
      } else {
        place.link = Make(state, server, static_cast<uint16_t>(thread), worker);
        followed.fresh.push_back(place.link.get());
      }
    }
  }
  for (Place& old : places_) {
    if (old.link == nullptr) continue;
    gone_frames_sent_ += old.link->frames_sent();
    gone_rewinds_ += old.link->rewinds();
    followed.gone.push_back(std::move(old.link));
  }
  places_ = std::move(places);
  first_ = std::move(first);
  for (const wire::SlotOwner& owner : state.slots) {
    StateVersion& since = places_[IndexOf(owner.server, owner.thread)].since;
    since = std::max(since, owner.since);
  }
  return followed;
}

bool Links::ready() const {
  return !places_.empty() &&
         std::all_of(places_.begin(), places_.end(), [](const Place& place) { return place.link->ready(); });
}

size_t Links::ready_count() const {
  return static_cast<size_t>(
      std::count_if(places_.begin(), places_.end(), [](const Place& place) { return place.link->ready(); }));
}

uint64_t Links::frames_sent() const {
  uint64_t sum = gone_frames_sent_;
  for (const Place& place : places_) sum += place.link->frames_sent();
  return sum;
}

uint64_t Links::rewinds() const {
  uint64_t sum = gone_rewinds_;
  for (const Place& place : places_) sum += place.link->rewinds();
  return sum;
}

}  // namespace cairn::client
