// What a restarted scheduler must know: the cluster's state, and what the nodes need not see (who
// registered with which uid, who was given up, which table requests were carried out). One log
// record is one whole value. Plain data; the other files of rules/ have the changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "cairn/status.h"
#include "wire/cluster_state.h"
#include "wire/control.h"

namespace cairn::scheduler {

enum class NodeFate : uint8_t {
  kLive = 0,
  kLeft = 1,     // a worker that is done, a server that went in good order
  kRetired = 2,  // declared dead, or replaced by its successor
};

// One registration. Kept for ever: a late copy of a dead node's Register must not look new.
struct NodeRecord {
  uint64_t uid = 0;
  Incarnation incarnation;
  wire::Role role = wire::Role::kWorker;
  NodeFate fate = NodeFate::kLive;
  uint32_t rank = 0;  // server: index
  uint64_t barrier_base = 0;
  bool operator==(const NodeRecord&) const = default;
};

// A table request that changed the state, so that a late copy of it does not change it again.
struct TableOperation {
  Incarnation incarnation;
  uint64_t request = 0;
  TableId table;
  StateVersion version;  // in which it took effect
  bool operator==(const TableOperation&) const = default;
};

struct DurableState {
  wire::ClusterState state;
  uint32_t slot_count = 0;
  uint32_t initial_servers = 0;  // that the job was started with: expected_servers may change
  uint64_t moves_done = 0;       // copies that came in sync, and primaries handed over, so far
  // Slots that have one owner more than wanted, because that on this server (index) is to go.
  std::map<uint32_t, uint16_t> moving_from;
  std::vector<NodeRecord> nodes;           // by incarnation, which is the order of registration
  std::set<uint32_t> joined_ranks;         // those that were ever in a view
  std::set<uint32_t> given_up_ranks;       // may name a live one: counts when that one is dead
  std::vector<std::string> dropped_names;  // the newest kMaxDroppedNames
  std::vector<TableOperation> operations;  // of live workers
  bool end_told = false;                   // the job is over, and everybody who could be told has been

  const NodeRecord* FindNode(Incarnation incarnation) const;
  NodeRecord* FindNode(Incarnation incarnation);
  bool running() const { return state.phase == wire::Phase::kRunning; }
  bool forming() const { return state.phase == wire::Phase::kForming; }
  bool over() const { return !running() && !forming(); }
  bool operator==(const DurableState&) const = default;
};

inline constexpr size_t kMaxDroppedNames = 256;
inline constexpr size_t kMaxNodes = size_t{1} << 20;  // registrations of one job

std::vector<std::byte> EncodeRecord(const DurableState& durable);
// Bytes from a file: checked before use.
Result<DurableState> DecodeRecord(std::span<const std::byte> bytes);

}  // namespace cairn::scheduler
