// What nodes have last said of their load: counts and the rates that follow from them, memory, the rows that
// are asked for most, rounds that stand still. For the user, and for whoever places tables and copies. One
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/ids.h"
#include "scheduler/rules/memory_room.h"
#include "wire/cluster_state.h"
#include "wire/control.h"

namespace cairn::scheduler {

class LoadReports {
 public:
  struct Load {
    wire::NodeStats stats;
    double pushes_per_s = 0, pulls_per_s = 0, bytes_per_s = 0;
    std::vector<uint64_t> staleness;  // workers: as in its heartbeat
  };
  struct HotRowShare {
    uint64_t key = 0;
    double share = 0;
    uint32_t slot = 0, server = 0;
  };

  void Take(Incarnation node, const wire::Heartbeat& heartbeat, int64_t now_us);
  // The part of a heartbeat that only servers have.
  void TakeRows(Incarnation server, const wire::Heartbeat& heartbeat, int64_t now_us);
  void Forget(Incarnation node) { nodes_.erase(node); }

  const Load& Of(Incarnation node) const;  // zeros: it has said nothing yet
  std::vector<ServerMemory> MemoryOfServers(const wire::ClusterState& state) const;
  // The rows of each table that are asked for most, with their share of all that is asked of it.
  std::map<TableId, std::vector<HotRowShare>> HottestRows(const wire::ClusterState& state) const;
  // As all servers say, as of now.
  std::vector<wire::StalledRound> StalledRounds(const wire::ClusterState& state, int64_t now_us) const;

 private:
  struct Node {
    Load load;
    wire::NodeStats rate_base;  // the sample that rates are measured from
    int64_t rate_base_us = 0;
    std::vector<wire::HotRow> hot_rows;
    std::vector<wire::SampledTable> sampled;
    std::vector<wire::StalledRound> stalled;
    int64_t stalled_us = 0;  // when it said so
  };
  const Node* Find(Incarnation node) const;

  std::map<Incarnation, Node> nodes_;
};

}  // namespace cairn::scheduler
