// What a checker is and what it may look at. Checkers judge a run from outside: they see every
// event at the moment it happens, and the memory of every simulated node. They never act. One
// thread per world.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "cairn/status.h"
#include "client/partition/partition.h"
#include "client/protocol/client_core.h"
#include "deeds.h"
#include "facts.h"
#include "history.h"
#include "plan.h"
#include "server/shard/shard.h"
#include "wire/cluster_state.h"
#include "wire/control.h"

namespace cairn::sim {

// Who holds a port: a scheduler, a server's control side or one of its shards, a worker, a tool.
struct Actor {
  wire::Role role = wire::Role::kTool;
  uint32_t index = 0;   // the keeper's number of the server, the launcher's of the worker
  int32_t thread = -1;  // shards only
  int process = -1;
  static Actor FromTag(uint64_t tag, int process);
  uint64_t Tag() const;
};

struct PushEvent {
  ShardName shard;
  SlotId slot;
  Incarnation incarnation;
  Seq seq;
  TableId table;
  server::Outcome outcome;
  Code code;
  std::span<const RowKey> keys;
  std::span<const std::byte> values;
  Hyper hyper;
  Position position;
};
struct StagedEvent {
  ShardName shard;
  SlotId slot;
  Incarnation incarnation;
  TableId table;
  Round round;
  double weight;
  bool refused;
  std::span<const RowKey> keys;
  std::span<const std::byte> values;
};
// A round in two phases is summed up in a slot.
struct SummedUpEvent {
  ShardName shard;
  SlotId slot;
  TableId table;
  Round round;
  double divisor;
  const std::vector<server::Contributor>& contributors;
  const std::vector<StagedPart>& staged;  // what was summed up
};
// A frame as it was made.
struct PreparedFrame {
  wire::FrameHeader header;
  std::vector<std::byte> body;
};
// A worker has made a request of a caller's values, or several, and is about to submit them.
struct PreparedEvent {
  uint32_t worker = 0;  // the launcher's number
  Incarnation incarnation;
  uint64_t call = 0;                                   // of all workers; CallEnd has the same
  const client::PartitionInput& given;                 // by the caller
  const std::vector<PreparedFrame>* frames = nullptr;  // null: refused, and nothing of it is sent
};
// A worker's push has taken room at its client's bound, or has given it back.
struct RoomEvent {
  int process = -1;
  uint64_t bytes = 0;
  bool taken = false;
};
// A worker has ended so many steps of a bounded table; `last`: it makes no more.
struct StepEnd {
  Incarnation worker;
  TableId table;
  uint64_t steps = 0;
  bool last = false;
};
// A read of a bounded table has begun: of equally many rows of each worker that its reader knew of, each of
// which counts that worker's steps. The call (CallEnd has the same) ends with them.
struct BoundedRead {
  uint64_t call = 0;
  TableId table;
  uint32_t staleness = 0;
  Incarnation reader;
  Round clock;  // the reader's, when it asked, or less
  std::vector<Incarnation> workers;
};
// A call of a worker has ended.
struct CallEnd {
  enum class Kind {
    kStart,
    kCreate,
    kDrop,
    kPush,
    kPushPull,
    kRound,
    kContribute,
    kDecide,
    kPull,
    kBarrier,
    kLeave
  };
  Kind kind = Kind::kPush;
  Status status;
  Incarnation incarnation;
  uint32_t worker = 0;  // the launcher's number
  TableId table;
  bool rogue = false;      // carried a NaN on purpose
  bool odd_hyper = false;  // used other hyper-parameters than the round has, on purpose
  bool short_deadline = false;
  bool churned = false;    // on a table that others drop
  bool assigns = false;    // a round of assigns
  bool closed = false;     // the client was closed before
  bool overtaken = false;  // some frame of this worker was, inside its connection
  bool in_parts = false;
  uint64_t call = 0;    // PreparedEvent::call; 0: none
  bool joined = false;  // a round that this worker had no more data for
  Round round;          // of rounds in one phase or two
  RoundInfo told;       // of rounds that ended well
  uint8_t column = 0;   // of pulls
  // Pulls and rounds that read: what was asked and what came.
  const wire::TableInfo* info = nullptr;
  std::span<const RowKey> keys;
  std::span<const std::byte> out;
  const std::map<uint32_t, Position>* acknowledged = nullptr;  // per slot, when the pull was submitted
  const std::map<uint32_t, Position>* read = nullptr;          // push-pulls: per slot, what was read
};
const char* Name(CallEnd::Kind kind);

// What the first phase of a round must tell of a slot, as the reference model has it.
struct SlotReport {
  double sum_squares = 0;
  bool finite = true;
};

// A backup whose content is not what it was sent, because of a memory fault.
struct Damage {
  StateVersion added;  // of the backup, on record: with another one it has been copied to anew
  uint64_t index = 0;  // of the operation that was damaged
  Position held;       // what the backup had, before it noticed
  bool noticed = false;
};

// What every checker can see.
struct Context {
  explicit Context(const Plan& p);

  const Plan& plan;
  std::function<int64_t()> now_us;
  std::function<void(const char* checker, const std::string& what)> report;
  Facts facts;
  History history;
  // Operations are told a second time, since others before them have never happened: nothing found
  // now counts.
  bool replaying = false;
  // Every shard that ever was registered, dead ones as they were when they died, and the newest state
  // that each was given.
  std::map<ShardName, server::Shard*> shards;
  std::set<ShardName> dead;
  std::set<uint64_t> silenced;  // incarnations of servers that the scheduler may take for dead
  std::map<std::pair<int, int32_t>, ShardName> shard_names;  // by process and thread
  std::map<ShardName, std::shared_ptr<const wire::ClusterState>> shard_states;
  std::map<uint64_t, std::shared_ptr<const wire::ClusterState>> states;  // given to shards, by version
  std::map<std::pair<ShardName, uint32_t>, uint64_t> led;  // the last epoch in which it led the slot
  // By slot: the last operation that an answer to anybody has told of, and the epoch it was made in.
  std::map<uint32_t, Position> told;
  // The scheduler's durable decisions.
  wire::ClusterState durable;
  std::map<uint32_t, wire::TableInfo> tables;  // every table that ever was, by id
  std::map<uint64_t, uint32_t> ranks;          // incarnation → rank of every worker that ever was
  std::set<uint64_t> left;                     // incarnations that left in good order
  std::map<uint64_t, uint64_t> barrier_bases;  // incarnation → where it counts its barriers from
  // Where each numbered push of (incarnation, slot) stands in the slot's order, by number - 1.
  std::map<std::pair<uint64_t, uint32_t>, std::vector<Position>> positions;
  // The reference model's reports, by (table, round) and slot.
  std::map<std::pair<uint32_t, uint64_t>, std::map<uint32_t, SlotReport>> reports;
  // By shard and slot. No owner may be hurt as long as there are any.
  std::map<std::pair<ShardName, uint32_t>, Damage> damaged;
  DeedCounts deeds;

  // The live workers that a round awaits under this state.
  static std::vector<Incarnation> Awaited(const wire::ClusterState& state, TableId table, Round round);
  // The slot's primary, once there is a slot map.
  ShardName OwnerOf(SlotId slot) const;
  server::Shard* ShardOf(SlotId slot) const;
  // The recorded owners that are in sync, the primary first.
  std::vector<ShardName> InSync(SlotId slot) const;
  // The shard that has sent this; null where it is not registered.
  const ShardName* NameOf(const Actor& shard) const;
  uint64_t EpochLed(const ShardName& shard, SlotId slot) const;
  // What the shard has of the slot, received or applied. (A backup that has noticed a damage may just
  // have confirmed operations: they count as received until it is dropped.)
  Position Received(const ShardName& shard, SlotId slot) const;
  Position Applied(const ShardName& shard, SlotId slot) const;
  server::Shard::SlotRole RoleOf(const ShardName& shard, SlotId slot) const;
  // It is the recorded owner, or one in sync, and has applied the line to its end.
  bool IsAtEnd(const ShardName& shard, SlotId slot) const;
};

class Checker {
 public:
  Checker(const char* name, Context& context) : context_(context), name_(name) {}
  virtual ~Checker() = default;
  const char* name() const { return name_; }

  // Shards: what lies on a slot's line (history.h), in its order, and what has no place in it
  // (duplicates, gaps, what is only staged), of whoever leads the line.
  virtual void OnPush(const PushEvent&) {}
  // After each message to a shard: what it keeps of early contributions to deterministic tables.
  virtual void OnEarlyBytes(const ShardName&, uint64_t, uint64_t) {}
  // After everything that happens to a shard: what it keeps because of its backups or its primary.
  virtual void OnHighWater(const ShardName&, const server::Shard::HighWater&) {}
  virtual void OnStaged(const StagedEvent&) {}
  virtual void OnSummedUp(const SummedUpEvent&) {}
  virtual void OnClosed(const ShardName&, const server::CloseRecord&) {}
  virtual void OnRetired(const ShardName&, Incarnation) {}
  // A part of the line has never happened: everything about the slot that came from the events above
  // is to be forgotten; what remains is told anew.
  virtual void ForgetSlot(SlotId) {}
  // A backup has been sent operations of this slot.
  virtual void OnReplicated(const ShardName&, SlotId) {}
  // Every operation, on the line or not.
  virtual void OnOperation(const Op&) {}
  // `held`: what the shard has when it becomes the slot's primary under `epoch`.
  virtual void OnPromoted(const ShardName&, SlotId, uint64_t /*epoch*/, Position /*held*/) {}
  // Now and then, with nothing in particular having happened.
  virtual void OnMoment() {}
  // Faults are over, and every slot has all of its owners again.
  virtual void OnSettled() {}
  // Clients.
  virtual void OnAcknowledged(SlotId, Incarnation, Seq) {}
  virtual void OnRoundAcknowledged(Incarnation, TableId, Round, const Status&) {}
  virtual void OnRead(SlotId, Incarnation, TableId, Position) {}
  virtual void OnPrepared(const PreparedEvent&) {}
  virtual void OnRoom(const RoomEvent&) {}
  virtual void OnCallEnd(const CallEnd&) {}
  virtual void OnStepEnd(const StepEnd&) {}
  virtual void OnClockBegins(Incarnation /*worker*/, TableId, Round /*start*/) {}
  virtual void OnBoundedRead(const BoundedRead&) {}
  virtual void OnBarrier(uint32_t /*worker*/, Incarnation, uint64_t /*count*/, bool /*passed*/) {}
  // The wire, at the moment of sending.
  virtual void OnControlSent(const Actor& /*from*/, const Actor* /*to*/, const wire::ControlMessage&) {}
  virtual void OnDataSent(const Actor& /*from*/, const Actor* /*to*/, const wire::FrameHeader&,
                          std::span<const std::byte> /*body*/) {}
  // The scheduler has made a state durable.
  virtual void OnDurable(const wire::ClusterState&) {}
  // A server or worker has another state.
  virtual void OnState(const Actor&, const wire::ClusterState&) {}
  // A node has heard of another term of schedulers.
  virtual void OnTerm(const Actor&, Term) {}
  // A process leaves of its own will.
  virtual void OnExit(const Actor&, const Status&) {}
  // A worker's process has ended.
  virtual void OnWorkerDied(Incarnation) {}
  // A worker process is over, one way or another; or a twin is started for its rank, and it may live on.
  virtual void OnClientGone(uint32_t /*worker*/, const client::ClientCore&, uint64_t /*incidents*/) {}
  virtual void AtEnd() {}

 protected:
  void Violation(const std::string& what) { context_.report(name_, what); }
  Context& context_;

 private:
  const char* name_;
};

std::vector<std::unique_ptr<Checker>> MakeCheckers(Context& context);

}  // namespace cairn::sim
