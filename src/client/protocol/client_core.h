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
#include "base/log.h"
#include "base/recycled.h"
#include "cairn/client.h"
#include "cairn/status.h"
#include "cairn/types.h"
#include "client/links/client_observer.h"
#include "client/links/client_options.h"
#include "client/partition/request.h"
#include "transport/network.h"
#include "wire/cluster_state.h"
#include "wire/control.h"

namespace cairn::client {

class ClientCore {
 public:
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
  // Bounded tables: this worker's step is over, every push of it submitted. `last`: no step follows. Others
  // hear of it when the pushes are acknowledged.
  virtual void EndStep(TableId table, bool last, int64_t now_us) = 0;
  // Steps that it has ended, from where it began.
  virtual Round clock(TableId table) const = 0;
  virtual std::vector<uint64_t> staleness() const = 0;  // of all reads so far: Clocks::staleness
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
