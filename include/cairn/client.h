// The worker's API: connect, make tables, push, pull, wait.
//
//   auto client = cairn::Client::Connect(cairn::ClientOptions::FromEnvironment().value()).value();
//   cairn::TableSpec spec{.name = "w", .mode = cairn::Mode::kSync,
//                         .optimizer = cairn::OptimizerKind::kSgd, .size = 7850};
//   cairn::DenseTable w = client->CreateDense(spec).value();
//   std::vector<float> weights(7850), gradient(7850);
//   CHECK(w.Pull(weights).Wait().ok());
//   while (Compute(weights, &gradient))
//     CHECK(w.PushPull(gradient, weights, {.hyper = {.lr = 0.1f}}).Wait().ok());
//   CHECK(client->Finish().ok());
//
// Thread-safe: any thread may call; pushes of one thread stay in its order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "cairn/status.h"
#include "cairn/types.h"

namespace cairn {

class ClientImpl;
class PendingState;
namespace client {
class OpenTrip;
}
namespace wire {
struct TableInfo;
}

struct ClientOptions {
  struct Address {
    std::string host;
    uint16_t port = 0;
  };
  std::string scheduler_host = "127.0.0.1";
  uint16_t scheduler_port = 0;
  std::vector<Address> more_schedulers;   // further ones: one of all leads, the others stand by
  std::string cluster_id;                 // empty: whatever cluster is there
  int32_t rank = -1;                      // wanted rank; -1: the scheduler chooses
  int64_t connect_timeout_ms = 120'000;   // all nodes present, by then
  int64_t call_timeout_ms = 30 * 60'000;  // every later call
  uint64_t max_unacked_bytes = uint64_t{64} << 20;
  std::function<void(const std::string&)> log;  // lines for the user; default: standard error
  // Asked every 50 ms or so by a push that waits for room in max_unacked_bytes, on the thread that
  // called it; if true, the push ends with kCancelled and nothing is sent. Default: never.
  std::function<bool()> interrupted;

  // From CAIRN_*, MS_*, PADDLE_* or DMLC_* variables (docs/reference/environment.md). An error names what
  // is missing or contradictory.
  static Result<ClientOptions> FromEnvironment();
};

// An operation under way. Wait blocks until it has ended, at its deadline at the latest. A push to
// an async table may be dropped without waiting: it goes on. The destructor of any other waits,
// because the operation uses the caller's memory.
class [[nodiscard]] Pending {
 public:
  Pending();
  Pending(Pending&&) noexcept;
  Pending& operator=(Pending&&) noexcept;
  ~Pending();
  Status Wait();
  // Waits for at most so long; true if it has ended. For callers that look after signals meanwhile.
  bool WaitFor(int64_t milliseconds);
  bool ready() const;

 private:
  friend class PendingState;
  explicit Pending(std::shared_ptr<PendingState> state);
  std::shared_ptr<PendingState> state_;
};

// What the servers say about a sync round.
struct RoundInfo {
  double sum_squares = 0;   // after Contribute: of all elements of the mean gradient
  bool finite = true;       // after Contribute: it is finite, and every worker's part of it was
  bool all_joined = false;  // every live worker had marked the round as joined
};

// What several of the options below mean:
// - weight: sync: of this worker's contribution to the mean
// - weighted: sync: the weight was chosen for this round. Either all workers say so, or none: a round in
//   which some do ends with kHyperMismatch, since the others' weight of 1 is most likely an oversight
// - timeout_ms: 0: the client's call_timeout_ms
// - mask: dense: which segments are in the push, one bit each (byte s / 8, bit s mod 8); empty: all
// - column: of an assign
// - value_scale: every value is multiplied by it on the servers (AMP: 1 / loss scale); sync only
// - joined: sync: this worker has run out of data and agrees to everything
// - info: sync: filled in before Wait returns ok; must live until then
struct PushOptions {
  Hyper hyper;
  double weight = 1.0;
  bool weighted = false;
  int64_t timeout_ms = 0;
  std::span<const std::byte> mask;
  PushOp op = PushOp::kUpdate;
  uint8_t column = 0;
  double value_scale = 1.0;
  RoundInfo* info = nullptr;
  // Push to an async dense table: the array is not copied. It must stay unchanged until the Pending
  // has ended, as with PushPull and in sync mode. For those who wait anyway.
  bool borrow = false;
};
struct PushPullOptions {
  Hyper hyper;
  double weight = 1.0;
  bool weighted = false;
  int64_t timeout_ms = 0;
  std::span<const std::byte> mask;
  PushOp op = PushOp::kUpdate;
  uint8_t column = 0;
  double value_scale = 1.0;
  RoundInfo* info = nullptr;
};
// Done and DonePull.
struct DoneOptions {
  Hyper hyper;
  double weight = 1.0;
  bool weighted = false;
  int64_t timeout_ms = 0;
  PushOp op = PushOp::kUpdate;
  uint8_t column = 0;
  bool joined = false;
  RoundInfo* info = nullptr;
};
struct ContributeOptions {
  Hyper hyper;
  double weight = 1.0;
  bool weighted = false;
  int64_t timeout_ms = 0;
  std::span<const std::byte> mask;
  double value_scale = 1.0;
  bool joined = false;
  bool not_finite = false;  // the gradient is not finite; none is sent, all are told
  RoundInfo* info = nullptr;
};
struct DecideOptions {
  Hyper hyper;
  double weight = 1.0;
  int64_t timeout_ms = 0;
  bool joined = false;
  double scale = 1.0;  // the mean gradient is multiplied by it
  bool skip = false;   // the round closes without being applied
  RoundInfo* info = nullptr;
};
struct PullOptions {
  int64_t timeout_ms = 0;
  uint8_t column = 0;          // 0 values, 1 to 3 the optimizer's state, kStepColumn
  bool when_assigned = false;  // dense, async: waits until the table's values have been assigned
};

// An array that lies in several pieces, in order. A piece without memory (data() null) stands for
// zeros in what is pushed, and for "not wanted" in what is pulled.
using ConstPieces = std::span<const std::span<const float>>;
using Pieces = std::span<const std::span<float>>;

struct EndStepOptions {
  bool last = false;  // no step follows: nobody waits for this worker in this table any more
};

// A handle; cheap to copy; valid as long as its Client.
//
// Bounded tables (TableSpec::staleness): a Pull waits until no worker is more than `staleness` steps behind
// this one. EndStep says that a step is over, every push of it begun; it waits for nothing.
//
// Sync tables: Push, PushPull and Done each finish one round of this worker; a Pull gives the
// values after this worker's last finished round, and waits for it. The arrays must stay unchanged
// until Wait has returned. Async tables: Push copies its arrays and returns (unless told to borrow);
// those of a PushPull must stay unchanged until Wait has returned; Done is an error. What a PushPull
// sends and where it receives must not overlap.
class DenseTable {
 public:
  uint64_t size() const;
  const TableSpec& spec() const;
  // Sync: the number of the round that this worker's next push takes part in. 0 at first; a worker
  // that joins a running job begins where the others are, and can go on from their step.
  Result<uint64_t> round() const;
  Pending Push(std::span<const float> gradient, const PushOptions& options = {});
  Pending Pull(std::span<float> out, const PullOptions& options = {});
  Pending PushPull(std::span<const float> gradient, std::span<float> out,
                   const PushPullOptions& options = {});
  Pending Done(const DoneOptions& options = {});
  Status EndStep(const EndStepOptions& options = {});
  // The same for a model whose tensors lie here and there. DonePull: a bare done, then the values.
  Pending Push(ConstPieces gradient, const PushOptions& options = {});
  Pending Pull(Pieces out, const PullOptions& options = {});
  Pending PushPull(ConstPieces gradient, Pieces out, const PushPullOptions& options = {});
  Pending DonePull(Pieces out, const DoneOptions& options = {});
  // A round in two phases (sync), for a decision over all of it before any of it is applied:
  // Contribute gives this worker's part and ends when all workers' parts are summed up, with
  // options.info; Decide says what becomes of the round, equally on all workers, and ends with the
  // new values. Between the two the pieces of the gradient may be changed again. With
  // options.not_finite or options.joined a Contribute has no pieces.
  Pending Contribute(ConstPieces gradient, const ContributeOptions& options = {});
  Pending Decide(Pieces out, const DecideOptions& options = {});
  // The same for tables of int64.
  Pending Push(std::span<const int64_t> values, const PushOptions& options = {});
  Pending Pull(std::span<int64_t> out, const PullOptions& options = {});
  Pending PushPull(std::span<const int64_t> values, std::span<int64_t> out,
                   const PushPullOptions& options = {});

 private:
  friend class ClientImpl;
  friend class Client;
  std::shared_ptr<ClientImpl> client_;
  std::shared_ptr<const struct TableHandle> table_;
};

// Rows of `dim` values by key. Keys of a push may repeat: their rows are summed (of an assign: the
// last one counts).
class SparseTable {
 public:
  uint32_t dim() const;
  const TableSpec& spec() const;
  Result<uint64_t> round() const;  // as of DenseTable
  Pending Push(std::span<const RowKey> keys, std::span<const float> rows, const PushOptions& options = {});
  Pending Pull(std::span<const RowKey> keys, std::span<float> out, const PullOptions& options = {});
  Pending PushPull(std::span<const RowKey> keys, std::span<const float> rows, std::span<float> out,
                   const PushPullOptions& options = {});
  Pending Done(const DoneOptions& options = {});
  Status EndStep(const EndStepOptions& options = {});
  // A round in two phases, as of DenseTable. With options.not_finite or options.joined without keys.
  Pending Contribute(std::span<const RowKey> keys, std::span<const float> rows,
                     const ContributeOptions& options = {});
  Pending Decide(const DecideOptions& options = {});
  // The keys of all rows that exist, in no particular order. Rows that are made meanwhile may be
  // missing. Blocks.
  Result<std::vector<RowKey>> Keys(const PullOptions& options = {});
  Pending Push(std::span<const RowKey> keys, std::span<const int64_t> rows, const PushOptions& options = {});
  Pending Pull(std::span<const RowKey> keys, std::span<int64_t> out, const PullOptions& options = {});
  Pending PushPull(std::span<const RowKey> keys, std::span<const int64_t> rows, std::span<int64_t> out,
                   const PushPullOptions& options = {});

 private:
  friend class ClientImpl;
  friend class Client;
  std::shared_ptr<ClientImpl> client_;
  std::shared_ptr<const struct TableHandle> table_;
};

using AnyTable = std::variant<DenseTable, SparseTable>;

// What the rows of a sparse table hold before their first push, where init.stream is not 0. `out` has
// keys.size() * dim elements; `storage` is the table's. Asks nobody.
void InitialRows(const Init& init, std::span<const RowKey> keys, uint32_t dim, std::span<float> out,
                 Storage storage = Storage::kFull);

class Client {
 public:
  // Calls of this thread on this client's tables that begin while a Trip lives are sent together
  // when it ends: one hand-over, one round trip to the servers, however many tables there are. Don't
  // wait for them before (who does sends what was begun so far, and they are two trips). A Trip
  // within a Trip of the same thread belongs to it; it may end on another thread.
  class Trip {
   public:
    explicit Trip(Client& client);
    Trip(const Trip&) = delete;
    Trip& operator=(const Trip&) = delete;
    ~Trip();

   private:
    std::shared_ptr<ClientImpl> impl_;
    std::shared_ptr<client::OpenTrip> trip_;
  };

  // Registers with the scheduler and waits until the cluster is complete. While it waits it says
  // every few seconds who is missing.
  static Result<std::unique_ptr<Client>> Connect(ClientOptions options);
  // Without Finish(): leaves as a dead worker would (the scheduler notices and goes on without).
  ~Client();

  uint32_t rank() const;
  uint32_t world_size() const;  // workers expected at the start of the job
  uint32_t server_count() const;
  const std::string& cluster_id() const;
  // Ranks of the workers that are alive now, ascending, as far as this one has heard; and this
  // start's number, which no other start of any worker of this job has.
  std::vector<uint32_t> live_ranks() const;
  std::vector<uint64_t> live_incarnations() const;
  // Bytes that this client has exchanged with the cluster, as they travelled. Blocks for a moment.
  struct Traffic {
    uint64_t sent = 0, received = 0;
  };
  Result<Traffic> traffic() const;
  // How many of this worker's reads of bounded tables (frames of them) have seen others 0, 1, 2 … steps
  // behind; the 33rd number stands for 32 and more. Blocks for a moment.
  Result<std::vector<uint64_t>> staleness() const;
  uint64_t incarnation() const;

  // Idempotent by name; the same name with a different spec is kAlreadyExists.
  Result<DenseTable> CreateDense(TableSpec spec);
  Result<SparseTable> CreateSparse(TableSpec spec);
  // Many at once, of both kinds (spec.kind says which), in the order of the specs: much faster than one
  // after the other. Up to 512 are made together or not at all; of more, some may be there after an error.
  Result<std::vector<AnyTable>> CreateTables(std::vector<TableSpec> specs);
  Status DropTable(const std::string& name);
  // Opens when every live worker has entered it. One that timed out is the same one when it is entered
  // again. BeginBarrier enters it and returns.
  Status Barrier();
  Pending BeginBarrier();
  // Waits until everything pushed is acknowledged, then leaves the job in good order. The last
  // worker's Finish ends the job.
  Status Finish();
  // Ends every call under way and leaves; the destructor does it too. Later calls are kCancelled.
  void Close();

 private:
  explicit Client(std::shared_ptr<ClientImpl> impl);
  DenseTable DenseHandle(wire::TableInfo info) const;
  SparseTable SparseHandle(wire::TableInfo info) const;
  std::shared_ptr<ClientImpl> impl_;
};

}  // namespace cairn
