// Control messages: registration, heartbeats, state, tables, handshakes. On the wire they are
// FlatBuffers (control.fbs), verified before use; in the code they are these plain structs.
// Every one of them may be lost, repeated or late: senders repeat until answered, receivers are
// idempotent.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/memory_limits.h"
#include "cairn/status.h"
#include "wire/cluster_state.h"
#include "wire/frame.h"
#include "wire/stalled_rounds.h"
#include "wire/state_delta.h"

namespace cairn::wire {

enum class Role : uint8_t { kScheduler = 0, kServer = 1, kWorker = 2, kTool = 3 };

// Node → scheduler. `uid` is random and unique to the process start: a repeated registration gets
// the same incarnation.
struct Register {
  uint8_t protocol_min = kProtocolVersion, protocol_max = kProtocolVersion;
  std::string cluster_id;  // empty: whatever cluster is there
  Role role = Role::kWorker;
  uint64_t uid = 0;
  Endpoint endpoint;     // servers: where they listen; workers: their host
  uint32_t threads = 1;  // servers: shard threads
  int32_t wanted_rank = -1;
};
// Scheduler → node. Sent only when the incarnation is in the log.
struct Registered {
  uint64_t uid = 0;
  std::string cluster_id;
  Term term;
  Incarnation incarnation;
  uint32_t rank = 0;          // worker: rank; server: index
  uint64_t barrier_base = 0;  // worker: count its barriers from here
  uint32_t heartbeat_ms = 0;  // how often the node should speak; 0: as it likes
};
struct NodeStats {  // cumulative, for `cairn status`
  uint64_t pushes = 0, pulls = 0, rounds = 0, bytes_in = 0, bytes_out = 0, rows = 0, memory_bytes = 0,
           connections = 0;
  uint64_t round_trips = 0;        // requests that were the first of their round trip (kFlagTrip)
  uint64_t replicated_bytes = 0;   // servers: sent to backups
  uint64_t unconfirmed_bytes = 0;  // servers: of these, not yet confirmed (not cumulative)
  uint64_t dense_bytes = 0;        // servers: of memory_bytes, what dense tables take
  MemoryLeft memory;               // servers: as it was when dense_bytes was counted
};
// What a primary says of one of its slots, in every heartbeat until the state reflects it. Each kind
// counts only if slot, epoch and (but for kHandedOver) the backup with its `added` are still so.
struct SlotNews {
  enum Kind : uint8_t {
    kCaughtUp = 1,    // the backup has everything, and the primary waits for its confirmations
    kHandedOver = 2,  // the primary takes nothing more; the heir has everything
    kSlow = 3,        // the backup has confirmed nothing for too long
    kDiverged = 4,    // the backup's content differs from the primary's at the same position
    // The last two are about the primary itself (`server` is its own index, `added` is 0) and end the job.
    kNotWhole = 5,  // it was made primary without a whole copy
    kSpent = 6,     // its order has come to the last index that a position can hold
  };
  uint32_t slot = 0;
  Kind kind = kCaughtUp;
  uint16_t server = 0;  // of the backup or heir: index
  uint64_t epoch = 0;
  StateVersion added;
  bool operator==(const SlotNews&) const = default;
};
// Size and work of a slot, as its primary sees it: what placement is balanced by.
struct SlotLoad {
  uint32_t slot = 0;
  uint64_t bytes = 0;     // memory of its rows
  uint64_t requests = 0;  // parts of pushes, contributions and pulls so far, under this primary
  uint64_t pushed =
      0;  // their work (server/slots/slot_work.h): of pushes and contributions, which backups do too
  uint64_t pulled = 0;  // of pulls
  bool operator==(const SlotLoad&) const = default;
};
// One of the rows of a sparse table that are asked for most, as a sample of requests has it.
struct HotRow {
  TableId table;
  uint64_t key = 0;
  uint64_t count = 0;  // times in the sample, recent ones more than old ones
  bool operator==(const HotRow&) const = default;
};
struct SampledTable {  // what the counts of its hot rows are shares of
  TableId table;
  uint64_t count = 0;
  bool operator==(const SampledTable&) const = default;
};
inline constexpr size_t kStalenessKinds = 33;
// Of one heartbeat.
inline constexpr size_t kMaxHotRows = 64, kMaxSampledTables = 64;
// Node → scheduler, every heartbeat interval and whenever something in it changed.
struct Heartbeat {
  Incarnation incarnation;
  uint64_t uid = 0;
  StateVersion version;                 // newest state held (servers: by every shard thread)
  uint64_t barrier_count = 0;           // workers: barriers entered so far
  ViewNumber hold_view;                 // servers: the pending view they hold for, 0 if none
  std::vector<TableRound> open_rounds;  // servers: per sync table, the first round that can await a newcomer
  bool end_confirmed = false;           // servers: has seen the end of the job and is leaving
  NodeStats stats;
  StateVersion hold_version;          // servers: the state that hold_view and open_rounds were reported under
  bool leaving = false;               // servers: wants its slots moved away, then goes
  std::vector<SlotNews> news;         // servers
  std::vector<SlotLoad> loads;        // servers: of the slots that they are the primary of
  std::vector<HotRow> hot_rows;       // servers: at most kMaxHotRows
  std::vector<SampledTable> sampled;  // servers: at most kMaxSampledTables
  std::vector<StalledRound> stalled;  // servers: at most kMaxStalledRounds
  // Workers: how many of their reads of bounded tables saw others 0, 1, 2 … steps behind. At most
  // kStalenessKinds; the last of so many stands for more, too.
  std::vector<uint64_t> staleness;
};
struct HeartbeatReply {
  Term term;
  StateVersion version;
  uint64_t barrier_open = 0;   // barriers up to this one are open
  std::string awaiting;        // who is awaited for what, in words, for the user
  uint32_t blocked_slots = 0;  // with fewer owners in sync than min_in_sync: requests to them wait
  uint32_t heartbeat_ms = 0;   // as in Registered
};
// Scheduler → node, whenever the node's version is behind; and worker ↔ shard thread, after a StateAt.
struct StateMessage {
  ClusterState state;
};
// StateDelta (state_delta.h): the same, to a node that has the version before.
struct CreateTable {
  uint64_t request = 0;
  Incarnation incarnation;
  TableSpec spec;
};
struct DropTable {
  uint64_t request = 0;
  Incarnation incarnation;
  std::string name;
};
// Answered when every live server holds the state that contains the change.
struct TableReply {
  uint64_t request = 0;
  Code code = Code::kOk;
  std::string text;
  TableId table;
  StateVersion version;
};
// Worker → scheduler: it is done, everything it pushed is acknowledged.
struct Leave {
  Incarnation incarnation;
};
struct LeaveReply {
  Incarnation incarnation;
};
// Launcher → scheduler: this rank does not come back.
struct GiveUp {
  uint32_t rank = 0;
};
// Launcher → scheduler: the process that registered with this uid has ended, it is known.
struct ProcessEnded {
  uint64_t uid = 0;  // of its registration
  bool out_of_memory = false;
};
// Launcher → scheduler: end the job with this error.
struct AbortJob {
  std::string reason;
};
struct StatusRequest {
  uint64_t request = 0;
};
struct StatusReply {
  uint64_t request = 0;
  std::string json;
};
// Worker → shard thread, first message of a data connection; and its answer.
struct Hello {
  uint8_t protocol_min = kProtocolVersion, protocol_max = kProtocolVersion;
  std::string cluster_id;
  Incarnation incarnation;         // of the worker
  Incarnation server_incarnation;  // the server that the worker means to talk to
  uint32_t thread = 0;
};
struct HelloReply {
  uint8_t protocol = kProtocolVersion;
  StateVersion version;
};
// The peer said something that can't be granted. kUnavailable means: try again later.
struct Refusal {
  uint64_t request = 0;
  Code code = Code::kInternal;
  std::string text;
};
// Shard → worker, every few seconds while a request of its is parked, and every second while an answer
// is held: of the oldest such answer on the connection, with whom it waits for in words.
struct StillWaiting {
  uint64_t request = 0;
  TableId table;
  Round round;  // 0: an answer is held
  std::vector<uint32_t> missing_ranks;
  std::string waits_for;
};

// Tool → scheduler: the job should have so many servers. Answered with a StatusReply, or a Refusal.
struct Scale {
  uint64_t request = 0;
  uint32_t servers = 0;
};
// Shard thread → shard thread of another server, first message of a replication connection: the
// sender is (or becomes) primary of slots that the receiver backs. Answered with a ReplicaHelloReply
// or a Refusal.
struct ReplicaHello {
  uint8_t protocol_min = kProtocolVersion, protocol_max = kProtocolVersion;
  std::string cluster_id;
  uint32_t from_server = 0, from_thread = 0;  // index, shard thread
  Incarnation from_incarnation;
  Incarnation to_incarnation;  // the server that is meant
  uint32_t to_thread = 0;
};
// `received`: the last frame of this sender (incarnation and thread) that was taken, 0 if none.
struct ReplicaHelloReply {
  uint8_t protocol = kProtocolVersion;
  uint64_t received = 0;
};

// Worker → scheduler, with every heartbeat as long as the program does nothing but wait, and every one of
// its calls waits for other workers.
struct Blocked {
  Incarnation incarnation;
  uint64_t serial = 0;          // another one as soon as it waits for anything else
  uint64_t barrier = 0;         // the one that it is in; 0: none
  std::vector<uint32_t> ranks;  // that every round and pull of it waits for; empty: it has none under way
  std::string what;             // the oldest of those: "round 118 of table \"w\""
};
// Scheduler → worker: what it has reported under this number can't end. The calls end with this text.
struct Deadlock {
  uint64_t serial = 0;
  std::string text;
};
// Worker → scheduler: all of them or none, in one record. A client cuts what is larger.
struct CreateTables {
  uint64_t request = 0;
  Incarnation incarnation;
  std::vector<TableSpec> specs;
};
inline constexpr size_t kMaxTablesAtOnce = 512;
// Worker ↔ shard thread, while the worker does not hear the scheduler: the newest state that the sender
// has. Whoever has a newer one answers with it, whoever has an older one with a StateAt of its own.
struct StateAt {
  StateVersion version;
};

using ControlMessage =
    std::variant<Register, Registered, Heartbeat, HeartbeatReply, StateMessage, CreateTable, DropTable,
                 TableReply, Leave, LeaveReply, GiveUp, AbortJob, StatusRequest, StatusReply, Hello,
                 HelloReply, Refusal, StillWaiting, Scale, ReplicaHello, ReplicaHelloReply, StateDelta,
                 ProcessEnded, Blocked, Deadlock, CreateTables, StateAt>;

FramePtr EncodeControl(const ControlMessage& message, BufferPool& pool);
Result<ControlMessage> DecodeControl(const FrameHeader& header, std::span<const std::byte> body);
// The state alone, as it lies in the scheduler's log.
std::vector<std::byte> EncodeState(const ClusterState& state);
Result<ClusterState> DecodeState(std::span<const std::byte> bytes);
// Of a frame that EncodeControl has made: whether only a registered node gets such a message.
bool IsForNodes(const Frame& own);
// Name of the message for traces and logs.
const char* Name(const ControlMessage& message);

}  // namespace cairn::wire
