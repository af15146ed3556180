#include "cluster/supervise/server_scale.h"

#include <algorithm>
#include <utility>

namespace cairn::cluster {

ServerScale::ServerScale(const Share& share) : share_(share), wanted_(share.nodes * share.servers) {}

bool ServerScale::OnEnd(uint32_t index, const std::optional<ServersSeen>& seen, int64_t now_ms) {
  changed_ms_ = now_ms;
  if (seen) {
    leaving_ = seen->leaving;
    if (seen->wanted > 0) wanted_ = seen->wanted;
  }
  return leaving_.erase(index) > 0;
}

uint32_t ServerScale::CountStaying(const std::set<uint32_t>& running) const {
  return static_cast<uint32_t>(std::count_if(running.begin(), running.end(),
                                             [&](uint32_t index) { return !leaving_.contains(index); }));
}

// More are wanted, or one has left that is to be replaced.
ServerScale::Change ServerScale::Follow(const ServersSeen& seen, int64_t asked_ms,
                                        const std::set<uint32_t>& running) {
  Change change;
  if (seen.wanted == 0 || !IsNew(asked_ms)) return change;
  const bool news = std::exchange(wanted_, seen.wanted) != seen.wanted;
  leaving_ = seen.leaving;
  uint32_t wanted = wanted_, first = 0, staying = CountStaying(running);
  if (share_.nodes > 1) {
    const uint32_t began_with = share_.nodes * share_.servers;
    if (share_.node_rank != 0 || wanted <= began_with) return change;
    wanted = share_.servers + wanted - began_with;
    first = began_with;
    staying = static_cast<uint32_t>(running.size());  // one that has left a machine is not replaced there
  }
  staying += given_up();
  change.news = news;
  change.too_many = staying > wanted;
  for (uint32_t index = first; staying < wanted; ++index) {
    if (running.contains(index) || given_up_.contains(index)) continue;
    change.start.push_back(index);
    ++staying;
  }
  return change;
}

}  // namespace cairn::cluster
