// ClusterState: all that the scheduler has decided, as one versioned value. It is a function of
// the scheduler's log; every node holds the newest it has heard of and never goes back. Small on
// purpose: where a difference (state_delta.h) does not do, it is sent whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "cairn/types.h"

namespace cairn::wire {

// Bounds of what a state may hold; decoders refuse more.
inline constexpr uint32_t kMaxSlots = 65536;
inline constexpr uint32_t kMaxBackups = 7;       // of a slot
inline constexpr uint32_t kMaxSegments = 65536;  // of a dense table
inline constexpr size_t kMaxHostBytes = 255;     // hosts and cluster ids
inline constexpr size_t kMaxTableNameBytes = 1024;

struct Endpoint {
  std::string host;
  uint16_t port = 0;
  bool operator==(const Endpoint&) const = default;
};
std::string ToString(const Endpoint& endpoint);  // "host:port"
// The endpoint is on this very host: what goes there crosses no wire that could damage it.
bool IsLoopback(const Endpoint& endpoint);

enum class Phase : uint8_t {
  kForming = 0,  // waiting for the expected servers and workers
  kRunning = 1,
  kEnded = 2,   // every rank is done or given up: everybody leaves
  kFailed = 3,  // the job can't go on; `failure` names the cause
};

struct ServerInfo {
  uint32_t index = 0;  // rank among the servers
  Incarnation incarnation;
  Endpoint endpoint;
  uint32_t threads = 1;
  bool leaving = false;  // its slots move away; when it has none left it goes
  bool operator==(const ServerInfo&) const = default;
};
// A live worker. One that died or left is not listed; its incarnation is below the watermark.
struct WorkerInfo {
  Rank rank;
  Incarnation incarnation;
  ViewNumber join_view;  // 0: registered, but not yet in a view
  Endpoint endpoint;     // host only, for the logs
  bool operator==(const WorkerInfo&) const = default;
};
// A further owner of a slot. The incarnation is that of the server with this index in the same state.
struct Backup {
  uint16_t server = 0;  // index
  uint16_t thread = 0;
  bool in_sync = false;  // it has every acknowledged operation; else it is being copied to
  StateVersion added;    // the version that made it a backup: what is said of an earlier one does not count
  bool operator==(const Backup&) const = default;
};
inline constexpr uint16_t kNoServer = 0xffff;
struct SlotOwner {
  uint16_t server = 0;  // of the primary: index
  uint16_t thread = 0;
  uint64_t epoch = 1;
  StateVersion since;           // the version in which this epoch began: older frames are refused
  uint16_t heir = kNoServer;    // an in-sync backup that the primary is handing the slot over to
  std::vector<Backup> backups;  // at most kMaxBackups, each on another server
  const Backup* FindBackup(uint16_t on_server) const {
    for (const Backup& backup : backups)
      if (backup.server == on_server) return &backup;
    return nullptr;
  }
  bool operator==(const SlotOwner&) const = default;
};
struct TableInfo {
  TableId id;
  TableSpec spec;
  ViewNumber created_view;
  bool operator==(const TableInfo&) const = default;
};
struct TableRound {
  TableId table;
  Round round;
  bool operator==(const TableRound&) const = default;
};
// The first round, per sync table, of the workers that joined with this view.
struct View {
  ViewNumber number;
  std::vector<TableRound> starts;
  bool operator==(const View&) const = default;
};

struct ClusterState {
  std::string cluster_id;
  Term term;
  StateVersion version;
  Phase phase = Phase::kForming;
  std::string failure;
  uint32_t expected_servers = 0;
  uint32_t expected_workers = 0;
  std::vector<ServerInfo> servers;  // by index
  std::vector<SlotOwner> slots;     // empty while forming
  std::vector<WorkerInfo> workers;  // live ones, by rank
  Incarnation next_incarnation{1};  // watermark: below it and not listed means retired
  ViewNumber view;                  // the newest
  ViewNumber pending_view;          // 0: none; otherwise shards hold and report their open rounds
  std::vector<View> views;          // those that some live worker joined with
  std::vector<TableInfo> tables;    // by id; below next_table and not listed means dropped
  TableId next_table{1};
  std::vector<uint32_t> done_ranks;  // ranks that have left in good order
  uint32_t replicas = 1;             // owners that a slot should have
  uint32_t min_in_sync = 1;          // with fewer owners in sync (the primary counts) nothing is acknowledged
  uint64_t failovers = 0;            // slots that got a new primary because theirs died, so far

  const TableInfo* FindTable(TableId id) const;
  const TableInfo* FindTable(const std::string& name) const;
  const WorkerInfo* FindWorker(Incarnation incarnation) const;
  const ServerInfo* FindServer(uint32_t index) const;
  const View* FindView(ViewNumber number) const;
  bool operator==(const ClusterState&) const = default;
};

// The first round of `table` that `worker` takes part in. Requires worker.join_view != 0.
Round FirstRound(const ClusterState& state, const WorkerInfo& worker, const TableInfo& table);

// Where things lie. Slot of a sparse key: the top bits of a fixed mix, by multiplication.
SlotId SlotOfKey(RowKey key, uint32_t slot_count);

// Dense tables are cut into blocks, and blocks are stepped over the slots. A slot's part is its
// blocks in ascending order, packed.
struct DenseLayout {
  uint64_t size = 0;
  uint32_t slot_count = 0;
  uint32_t block = 0;  // elements of a block (the last one may be shorter)
  uint32_t start = 0;
  uint32_t stride = 1;  // odd and coprime to slot_count
  static DenseLayout Of(TableId table, uint64_t size, uint32_t slot_count);
  uint64_t block_count() const { return block == 0 ? 0 : (size + block - 1) / block; }
  uint32_t SlotOfBlock(uint64_t b) const {
    return static_cast<uint32_t>((start + static_cast<unsigned __int128>(stride) * b) % slot_count);
  }
};
// A run of elements [begin, begin + count) of the table that lies in one slot.
struct DenseRun {
  uint64_t begin = 0;
  uint32_t count = 0;
};
// For each slot its runs, in order. A pure function: client and servers compute the same.
std::vector<std::vector<DenseRun>> RunsBySlot(const DenseLayout& layout);

}  // namespace cairn::wire
