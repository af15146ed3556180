// Which shard thread has which slots, grouped for the partition of a request.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "wire/cluster_state.h"

namespace cairn::client {

// Every shard thread of the cluster in the order (server, thread), also those without slots; the
// slots of each ascend, as frames need them.
class Routes {
 public:
  struct Thread {
    uint16_t server = 0, thread = 0;
    uint32_t first = 0, end = 0;  // its slots, as indexes into slots()
  };
  // Requires CheckState (client/links/check_state.h) to have said yes to the state.
  void Build(const wire::ClusterState& state);
  std::span<const Thread> threads() const { return threads_; }
  std::span<const uint32_t> slots() const { return slots_; }
  std::span<const uint32_t> SlotsOf(const Thread& t) const {
    return std::span<const uint32_t>(slots_).subspan(t.first, t.end - t.first);
  }

 private:
  std::vector<Thread> threads_;
  std::vector<uint32_t> slots_;
  std::vector<uint32_t> base_;  // of each server in threads_, by index; indexes may have holes
};

}  // namespace cairn::client
