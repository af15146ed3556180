// The links to all shard threads of the newest state, found by (server, thread) and by connection. Servers
// come and go, and an index may be given to another one: a link belongs to one incarnation. The core's
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "base/ids.h"
#include "client/links/client_options.h"
#include "client/links/shard_link.h"
#include "client/links/slot_book.h"
#include "transport/network.h"
#include "wire/cluster_state.h"

namespace cairn::client {

class Links {
 public:
  struct Place {
    std::unique_ptr<ShardLink> link;
    StateVersion since;  // the newest `since` of its slots; 0 if it has none
  };
  // Every link tells this listener.
  Links(const ClientCoreOptions& options, Network& network, BufferPool& pool, SlotBook& book,
        ShardLink::Listener& listener)
      : options_(options), network_(network), pool_(pool), book_(book), listener_(listener) {}

  struct Followed {
    std::vector<std::unique_ptr<ShardLink>> gone;  // taken out: their servers are no more
    std::vector<ShardLink*> fresh;                 // made, and not connected yet
  };
  // Requires CheckState (client/links/check_state.h) to have said yes to the state.
  Followed Follow(const wire::ClusterState& state, Incarnation worker);

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
  // Null if the connection is none of theirs.
  ShardLink* OfConn(ConnId conn) const {
    const auto it = by_conn_.find(conn);
    return it == by_conn_.end() ? nullptr : it->second;
  }
  bool ready() const;  // every one of them, and there are some
  size_t ready_count() const;
  // Over all links there have been.
  uint64_t frames_sent() const;
  uint64_t rewinds() const;

 private:
  struct Run {
    size_t first = 0;
    uint32_t count = 0;
  };
  std::unique_ptr<ShardLink> Make(const wire::ClusterState& state, const wire::ServerInfo& server,
                                  uint16_t thread, Incarnation worker);

  const ClientCoreOptions& options_;
  Network& network_;
  BufferPool& pool_;
  SlotBook& book_;
  ShardLink::Listener& listener_;
  LinksByConn by_conn_;
  std::vector<Place> places_;
  std::vector<Run> first_;  // by server; those of no server are empty
  uint64_t gone_frames_sent_ = 0, gone_rewinds_ = 0;
};

}  // namespace cairn::client
