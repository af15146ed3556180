// The worker's API: connect, make tables, push, pull, wait.
//
//   auto client = cairn::Client::Connect(cairn::ClientOptions::FromEnvironment().value()).value();
//   cairn::TableSpec spec{.name = "w", .mode = cairn::Mode::kSync, .optimizer = cairn::OptimizerKind::kSgd, .size = 7850};
//   cairn::DenseTable w = client->CreateDense(spec).value();
//   std::vector<float> weights(7850), gradient(7850);
//   CHECK(w.Pull(weights).Wait().ok());
//   while (Compute(weights, &gradient)) CHECK(w.PushPull(gradient, weights, {.hyper = {.lr = 0.1f}}).Wait().ok());
//   CHECK(client->Finish().ok());
//
// Thread-safe: any thread may call; pushes of one thread stay in its order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cairn/status.h"
#include "cairn/types.h"

namespace cairn {

class ClientImpl;

struct ClientOptions {
  std::string scheduler_host = "127.0.0.1";
  uint16_t scheduler_port = 0;
  std::string cluster_id;                  // empty: whatever cluster is there
  int32_t rank = -1;                       // wanted rank; -1: the scheduler chooses
  int64_t connect_timeout_ms = 120'000;    // all nodes present, by then
  int64_t call_timeout_ms = 30 * 60'000;   // every later call
  uint64_t max_unacked_bytes = uint64_t{64} << 20;
  std::function<void(const std::string&)> log;  // lines for the user; default: standard error

  // From CAIRN_*, MS_*, PADDLE_* or DMLC_* variables (docs/environment.md). An error names what is
  // missing or contradictory.
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
  bool ready() const;

 private:
  friend class ClientImpl;
  struct State;
  explicit Pending(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

struct PushOptions {
  Hyper hyper;
  double weight = 1.0;      // sync: of this worker's contribution to the mean
  int64_t timeout_ms = 0;   // 0: the client's call_timeout_ms
};
struct PullOptions {
  int64_t timeout_ms = 0;
};

// A handle; cheap to copy; valid as long as its Client.
//
// Sync tables: Push, PushPull and Done each finish one round of this worker; a Pull gives the
// values after this worker's last finished round, and waits for it. The arrays must stay unchanged
// until Wait has returned. Async tables: Push copies its arrays and returns; Done is an error.
class DenseTable {
 public:
  uint64_t size() const;
  const TableSpec& spec() const;
  // Sync: the number of the round that this worker's next push takes part in. 0 at first; a worker
  // that joins a running job begins where the others are, and can go on from their step.
  Result<uint64_t> round() const;
  Pending Push(std::span<const float> gradient, const PushOptions& options = {});
  Pending Pull(std::span<float> out, const PullOptions& options = {});
  Pending PushPull(std::span<const float> gradient, std::span<float> out, const PushOptions& options = {});
  Pending Done(const PushOptions& options = {});
  // The same for tables of int64.
  Pending Push(std::span<const int64_t> values, const PushOptions& options = {});
  Pending Pull(std::span<int64_t> out, const PullOptions& options = {});
  Pending PushPull(std::span<const int64_t> values, std::span<int64_t> out, const PushOptions& options = {});

 private:
  friend class ClientImpl;
  friend class Client;
  std::shared_ptr<ClientImpl> client_;
  std::shared_ptr<const struct TableHandle> table_;
};

// Rows of `dim` values by key. Keys of a push may repeat: their rows are summed.
class SparseTable {
 public:
  uint32_t dim() const;
  const TableSpec& spec() const;
  Result<uint64_t> round() const;  // as of DenseTable
  Pending Push(std::span<const RowKey> keys, std::span<const float> rows, const PushOptions& options = {});
  Pending Pull(std::span<const RowKey> keys, std::span<float> out, const PullOptions& options = {});
  Pending PushPull(std::span<const RowKey> keys, std::span<const float> rows, std::span<float> out,
                   const PushOptions& options = {});
  Pending Done(const PushOptions& options = {});
  Pending Push(std::span<const RowKey> keys, std::span<const int64_t> rows, const PushOptions& options = {});
  Pending Pull(std::span<const RowKey> keys, std::span<int64_t> out, const PullOptions& options = {});
  Pending PushPull(std::span<const RowKey> keys, std::span<const int64_t> rows, std::span<int64_t> out,
                   const PushOptions& options = {});

 private:
  friend class ClientImpl;
  friend class Client;
  std::shared_ptr<ClientImpl> client_;
  std::shared_ptr<const struct TableHandle> table_;
};

class Client {
 public:
  // Registers with the scheduler and waits until the cluster is complete. While it waits it says
  // every few seconds who is missing.
  static Result<std::unique_ptr<Client>> Connect(ClientOptions options);
  // Without Finish(): leaves as a dead worker would (the scheduler notices and goes on without).
  ~Client();

  uint32_t rank() const;
  uint32_t world_size() const;  // workers expected at the start of the job
  uint32_t server_count() const;
  const std::string& cluster_id() const;

  // Idempotent by name; the same name with a different spec is kAlreadyExists.
  Result<DenseTable> CreateDense(TableSpec spec);
  Result<SparseTable> CreateSparse(TableSpec spec);
  Status DropTable(const std::string& name);
  // Opens when every live worker has entered it.
  Status Barrier();
  // Waits until everything pushed is acknowledged, then leaves the job in good order. The last
  // worker's Finish ends the job.
  Status Finish();

 private:
  explicit Client(std::shared_ptr<ClientImpl> impl);
  std::shared_ptr<ClientImpl> impl_;
};

}  // namespace cairn
