// The worker's side as a state machine: registration, routing by slot map, numbering, resending,
// rounds, pulls, barriers, deadlines. No sockets, clocks or threads; one thread drives it.
// The public Client (include/cairn/client.h) puts threads and sockets around it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/call.h"
#include "base/ids.h"
#include "base/recycled.h"
#include "cairn/client.h"
#include "cairn/status.h"
#include "cairn/types.h"
#include "transport/network.h"
#include "wire/cluster_state.h"
#include "wire/control.h"

namespace cairn::client {

struct ClientCoreOptions {
  wire::Endpoint scheduler;
  std::vector<wire::Endpoint> schedulers;  // several, of which one leads; empty: `scheduler` alone
  std::string host = "127.0.0.1";  // ours, for the logs
  std::string cluster_id;          // empty: whatever cluster is there
  int32_t wanted_rank = -1;
  uint64_t uid = 0;   // random, unique to this start
  uint64_t seed = 0;  // for back-off jitter
  uint64_t max_unacked_bytes = uint64_t{64}
                               << 20;  // numbered pushes; a larger single push is let through alone
  uint32_t max_unacked_frames = 1024;  // per connection; servers keep as many refusals
  int64_t heartbeat_us = 1'000'000;
  int64_t resend_after_us = 3'000'000;  // no answer for so long on a connection: reset it and resend
  int64_t reconnect_min_us = 20'000, reconnect_max_us = 1'000'000;
  int64_t still_waiting_log_us = 10'000'000;
  // Whether the program does nothing but wait for its calls; null: that is not known.
  std::function<bool(int64_t now_us)> program_waits;
  // In words, where the host that was last tried has a name that nobody knows; else empty. May be null.
  std::function<std::string()> unknown_host;
};

// One frame of a request, to one shard thread. `into` says where the values of its reply go:
// reply bytes are scattered, in order, into these spans (empty: no values expected; a span with a
// size and no memory: so many bytes are skipped).
struct ShardPart {
  uint16_t server = 0, thread = 0;  // of the state that the frame was made under
  wire::FramePtr frame;   // entries not yet numbered, request_id not yet set
  bool borrowed = false;  // the frame's values lie in the caller's memory
  RecycledVector<std::span<std::byte>> into;
  // Sparse tables, instead of `into`: row i of the reply goes to row rows[i] of `out`; `repeats`
  // are the further places of keys that stood several times in a push-pull.
  struct Repeat {
    uint32_t from = 0;  // row of the reply
    uint32_t to = 0;    // row of `out`
  };
  RecycledVector<uint32_t> rows;
  RecycledVector<Repeat> repeats;
  std::byte* out = nullptr;
  uint32_t row_bytes = 0;
  // A request for keys, instead of both: those of the reply, however many, are added here.
  std::vector<RowKey>* keys = nullptr;
};

// A prepared request (client/partition/partition.h makes it). What `frame` and `into` refer to must stay
// alive until `done` is called.
struct Request {
  // kContribute and kDecide are the two phases of a round (docs/internals/consistency.md, rules 33 to 35).
  enum class Kind { kPush, kRound, kPull, kContribute, kDecide };
  Kind kind = Kind::kPush;
  TableId table;
  uint64_t bytes = 0;  // payload, counted against max_unacked_bytes (kPush)
  // A push in parts, each a request: all have the same number (0: it is whole). The first one says how much
  // room all of them need and waits for that; the others (0) go as soon as it has gone. If it expires before
  // that, so do they: of such a push either every part is sent, or none.
  uint64_t push = 0, room = 0;
  RecycledVector<ShardPart> parts;
  // Rounds: a bare mark, to be copied for shard threads that have to be told (again) that this
  // worker's part of the round is complete: slots move (docs/internals/consistency.md, rule 49).
  wire::FramePtr mark;
  bool joined = false;        // rounds: the marks say so
  RoundInfo* info = nullptr;  // rounds: written before `done` is called with ok, never later
  // Requests of one trip have the same number, and only the first frame of it on a connection says
  // kFlagTrip; 0: a trip of its own. So is what has to wait for its turn.
  uint64_t trip = 0;
  int64_t deadline_us = 0;  // absolute
  Call<void(Status)> done;  // exactly once, from inside some On… or Submit call
};

// Parts of sync rounds, answered with a kRoundReply.
inline bool IsRound(Request::Kind kind) {
  return kind == Request::Kind::kRound || kind == Request::Kind::kContribute ||
         kind == Request::Kind::kDecide;
}

class ClientObserver {
 public:
  virtual ~ClientObserver() = default;
  // The core has taken a slot's part of a numbered push as acknowledged (applied).
  virtual void OnAcknowledged(SlotId slot, Incarnation incarnation, Seq seq) = 0;
  // The core has taken a round as closed on every shard thread.
  virtual void OnRoundAcknowledged(Incarnation incarnation, TableId table, Round round,
                                   const Status& outcome) = 0;
  // The core has accepted the answer to a pull (part): a slot's position.
  virtual void OnRead(SlotId slot, Incarnation incarnation, TableId table, Position position) = 0;
};

class ClientCore {
 public:
  using LogLine = std::function<void(const std::string&)>;
  using Done = std::function<void(Status)>;
  using TableDone = std::function<void(Result<wire::TableInfo>)>;
  using TablesDone = std::function<void(Result<std::vector<wire::TableInfo>>)>;

  static std::unique_ptr<ClientCore> Make(const ClientCoreOptions& options, Network& network,
                                          BufferPool& pool, LogLine log, int64_t now_us,
                                          ClientObserver* observer = nullptr);
  virtual ~ClientCore() = default;

  // Driver events.
  virtual void OnConnected(ConnId conn, int64_t now_us) = 0;
  virtual void OnMessage(ConnId conn, wire::InFrame& frame, int64_t now_us) = 0;
  virtual void OnDisconnect(ConnId conn, int64_t now_us) = 0;
  virtual void OnTick(int64_t now_us) = 0;
  // The largest body that a frame with this header may have on this connection, by what was asked there:
  // the driver refuses a larger one before it takes memory for it, and closes the connection.
  virtual uint64_t MostBodyBytes(ConnId conn, const wire::FrameHeader& header) const = 0;

  // Calls. Each `done` is called exactly once, at its deadline at the latest.
  // Registered, in a view, and connected to every shard thread.
  virtual void Start(int64_t deadline_us, Done done, int64_t now_us) = 0;
  virtual void CreateTable(const TableSpec& spec, int64_t deadline_us, TableDone done, int64_t now_us) = 0;
  // All of them or none, in their order. At most wire::kMaxTablesAtOnce.
  virtual void CreateTables(std::vector<TableSpec> specs, int64_t deadline_us, TablesDone done,
                            int64_t now_us) = 0;
  virtual void DropTable(const std::string& name, int64_t deadline_us, Done done, int64_t now_us) = 0;
  // Numbered pushes are sent in the order of Submit. A kRound request is held back until this
  // worker's last round of the table is closed everywhere, and so is a kContribute. A push beyond
  // max_unacked_bytes is held back too: has_room() says whether the next one would be.
  //
  // A kContribute that ends well leaves its round open for the kDecide that must follow: until
  // then further rounds of the table are refused (those submitted before it ended are held back
  // until the kDecide is answered), and pulls give the values before that round. One that ends at
  // its deadline leaves its round open too: this worker's part counts, and only a kDecide may
  // follow, whatever is answered later. One that ends in any other error leaves nothing to decide:
  // the core has sent the decision to skip to all shard threads, in case the round is still open
  // on some.
  virtual void Submit(Request request, int64_t now_us) = 0;
  // A push and the pull behind it. Where both have the same parts, a part's pull goes right behind its
  // push: the server reads what it has just written, and answers flow while the rest is still sent.
  virtual void SubmitInTurns(Request push, Request pull, int64_t now_us) = 0;
  virtual bool has_room() const = 0;
  virtual void Barrier(int64_t deadline_us, Done done, int64_t now_us) = 0;
  // Done with the job: waits until everything is acknowledged, then leaves the view.
  virtual void Leave(int64_t deadline_us, Done done, int64_t now_us) = 0;
  // Ends every call under way with kCancelled (pushes: kOutcomeUnknown). For a closing driver.
  virtual void Cancel(int64_t now_us) = 0;

  // The newest state; replaced, never changed, so a caller's thread may keep it.
  virtual std::shared_ptr<const wire::ClusterState> state() const = 0;
  virtual Incarnation incarnation() const = 0;
  virtual Term term() const = 0;  // of schedulers: the highest that was heard of
  virtual Rank rank() const = 0;
  // The round that this worker's next kRound request of the table will have.
  virtual Round next_round(TableId table) const = 0;
  // Not ok once the job has failed or this incarnation is retired: every call ends with it.
  virtual Status fatal() const = 0;
  // Frames sent on data connections so far, resends included, and how often one was rewound.
  virtual uint64_t frames_sent() const = 0;
  virtual uint64_t rewinds() const = 0;
};

}  // namespace cairn::client
