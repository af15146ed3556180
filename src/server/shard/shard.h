// A shard: the slots of one thread of a server. Tables, rounds, sequence numbers; a state machine
// without sockets, clocks or threads. docs/internals/consistency.md has its rules.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/ids.h"
#include "cairn/types.h"
#include "server/slots/hot_report.h"
#include "server/slots/records.h"
#include "server/slots/shard_options.h"
#include "transport/network.h"
#include "wire/cluster_state.h"
#include "wire/control.h"
#include "wire/data.h"
#include "wire/frame.h"

namespace cairn::server {

class Shard {
 public:
  static std::unique_ptr<Shard> Make(const ShardOptions& options, Network& network, BufferPool& pool,
                                     ShardObserver* observer = nullptr);
  virtual ~Shard() = default;

  // Which server this is; known once the node is registered. Before it, Hello is answered with
  // Refusal(kUnavailable).
  virtual void OnRegistered(uint32_t server_index, Incarnation incarnation) = 0;
  // A newer state (older ones are ignored). `now_us` as everywhere is monotonic.
  virtual void OnState(std::shared_ptr<const wire::ClusterState> state, int64_t now_us) = 0;
  virtual void OnConnected(ConnId conn, int64_t now_us) = 0;  // one that it has asked for: to a backup
  virtual void OnMessage(ConnId conn, wire::InFrame& frame, int64_t now_us) = 0;
  virtual void OnDisconnect(ConnId conn, int64_t now_us) = 0;
  virtual void OnTick(int64_t now_us) = 0;
  // Something for the next heartbeat has changed since this was last asked: worth a report at once.
  virtual bool TakeNewsFlag() = 0;

  virtual StateVersion version() const = 0;
  // For the pending view of the state it holds: per sync table, the first round that those who join
  // could take part in here, as it was when it began to hold (frozen until that view is decided).
  // Empty where nothing is pending.
  virtual ViewNumber hold_view() const = 0;
  virtual std::vector<wire::TableRound> hold_rounds() const = 0;
  virtual wire::NodeStats stats() const = 0;
  virtual uint64_t reusable_bytes() const = 0;  // memory that it holds and no table has
  // The largest body that a frame with this header may have here (server/shard/request_size.h).
  virtual uint64_t MostBodyBytes(const wire::FrameHeader& header) const = 0;
  // The same, on a connection that it has asked for.
  virtual uint64_t MostAnswerBytes(const wire::FrameHeader& header) const = 0;
  // What is to be said of slots that this shard is the primary of.
  virtual std::vector<wire::SlotNews> news() const = 0;
  virtual std::vector<wire::SlotLoad> loads() const = 0;
  // The rows that are asked for most, of the tables that are; no more than a heartbeat takes.
  using HotReport = server::HotReport;
  virtual HotReport hot_rows() const = 0;
  // The newest state that a worker has passed on, if it is newer than the shard's own: for all of the
  // server, which gives it back by OnState. Null if there is none.
  virtual std::shared_ptr<const wire::ClusterState> passed_state() const = 0;
  // Rounds that requests here have waited for, some seconds at least; no more than a heartbeat takes.
  virtual std::vector<wire::StalledRound> stalled() const = 0;

  // For tests and checkers: the last number applied or refused of a client in a slot, 0 if none.
  virtual Seq LastSeq(SlotId slot, Incarnation incarnation) const = 0;
  struct Refusal {
    Seq seq;
    Status why;
  };
  // What copies of refused pushes of this client would be told: by number, ascending, the newest
  // `refusals_kept`. Empty where the client is not listed.
  virtual std::vector<Refusal> RefusalsOf(SlotId slot, Incarnation incarnation) const = 0;
  // Bytes of contributions to deterministic tables that wait for their turn.
  virtual uint64_t early_bytes() const = 0;
  // How often a new state or a report has made it look at what one table has in one slot, so far.
  virtual uint64_t looks_at_rows() const = 0;
  // Of any owner; LastSeq, RefusalsOf, OpenRound and ForEachRow too tell what is applied at a backup.
  using SlotRole = server::SlotRole;
  virtual SlotRole RoleOf(SlotId slot) const = 0;
  // The epoch whose primary's word this shard last took (its own as the primary), and the last index
  // it has, applied or not. Nothing where it does not hold the slot, or the copy is not whole.
  virtual Position Received(SlotId slot) const = 0;
  virtual Position Applied(SlotId slot) const = 0;
  virtual uint64_t ContentHash(SlotId slot) const = 0;  // rule 51; of what is applied
  // As the primary: answers about this slot wait for the confirmation of this server.
  virtual bool WaitsFor(SlotId slot, uint32_t server) const = 0;
  struct HighWater {  // now
    uint64_t unconfirmed_bytes = 0, tail_bytes = 0, held_answers = 0;
  };
  virtual HighWater high_water() const = 0;
  virtual Round OpenRound(TableId table, SlotId slot) const = 0;
  // Every stored row of one table in one slot (dense: one call with key 0 and the packed slot).
  virtual void ForEachRow(TableId table, SlotId slot,
                          const std::function<void(RowKey, std::span<const std::byte>)>& row) const = 0;
};

// The shard's answer to a good Hello: its receiver may send large frames from now on. One that was
// refused may try again, with small frames only.
bool IsHelloReply(const wire::Frame& frame);

}  // namespace cairn::server
