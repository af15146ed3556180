// The links to all shard threads of the newest state, found by (server, thread). Servers come and
// go, and an index may be given to another one: a link belongs to one incarnation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "client/links/shard_link.h"
#include "wire/cluster_state.h"

namespace cairn::client {

class Links {
 public:
  struct Place {
    std::unique_ptr<ShardLink> link;
    StateVersion since;  // the newest `since` of its slots; 0 if it has none
  };
  using Make = std::function<std::unique_ptr<ShardLink>(const wire::ServerInfo&, uint16_t thread)>;

  // Makes links to new shard threads; takes out, and returns, those to servers that are gone.
  // Requires CheckState (scheduler_link.h) to have said yes to the state.
  std::vector<std::unique_ptr<ShardLink>> Follow(const wire::ClusterState& state, const Make& make);

  // In the order (server, thread).
  std::vector<Place>& all() { return places_; }
  const std::vector<Place>& all() const { return places_; }
  bool empty() const { return places_.empty(); }
  // Its place in all(); all().size() if there is no such thread.
  size_t IndexOf(uint32_t server, uint32_t thread) const {
    if (server >= first_.size()) return places_.size();
    const Run& run = first_[server];
    return thread < run.count ? run.first + thread : places_.size();
  }
  ShardLink* At(uint32_t server, uint32_t thread) const {
    const size_t at = IndexOf(server, thread);
    return at < places_.size() ? places_[at].link.get() : nullptr;
  }
  bool ready() const;  // every one of them, and there are some
  // Over all links there have been.
  uint64_t frames_sent() const;
  uint64_t rewinds() const;

 private:
  struct Run {
    size_t first = 0;
    uint32_t count = 0;
  };
  std::vector<Place> places_;
  std::vector<Run> first_;  // by server; those of no server are empty
  uint64_t gone_frames_sent_ = 0, gone_rewinds_ = 0;
};

}  // namespace cairn::client
