// ClientImpl: the public Client's engine. One loop thread has the sockets and the state machine
// (ClientCore); the callers' threads do the copying and checking (partition.h), post the prepared
// request to the loop and wait on a Pending.
//
// Memory of the callers. A sync contribution, the push of a push-pull and a push that is told to
// borrow the caller's array: their frames refer to it.
// When the core says that such a request has ended, this class first makes every connection let go
// of the request's frames (TcpNetwork::Disown) and only then completes the Pending.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "base/call.h"
#include "base/log.h"
#include "base/recycled.h"
#include "cairn/client.h"
#include "client/protocol/client_core.h"
#include "client/partition/dense_plan.h"
#include "client/partition/early_parts.h"
#include "client/partition/error_feedback.h"
#include "client/runtime/open_trip.h"
#include "client/partition/partition.h"
#include "client/api/pending_state.h"
#include "client/runtime/unacked_bytes.h"
#include "client/protocol/user_waits.h"
#include "transport/tcp/loop.h"
#include "transport/tcp/tcp_network.h"
#include "wire/cluster_state.h"

namespace cairn {

struct TableHandle {
  wire::TableInfo info;
  std::shared_ptr<client::DensePlanCache> plans = nullptr;  // dense
  std::shared_ptr<client::ErrorFeedback> feedback = nullptr;  // WireFormat::kTopK
};

// One call on a table, in bytes. Dense: no keys. What the pointers of the options refer to is used
// until the call returns, but for `info`.
struct TableCall {
  ElementType element = ElementType::kFloat32;  // of the arrays that were passed
  std::span<const RowKey> keys;
  client::PieceList<const std::byte> values;
  client::PieceList<std::byte> out;
  PushOptions options;
  PullOptions pull;

  uint64_t bytes() const { return values.bytes() + keys.size_bytes(); }
};

class ClientImpl {
 public:
  static Result<std::shared_ptr<ClientImpl>> Connect(ClientOptions options);
  ~ClientImpl();

  // A call that has ended already.
  static Pending Ready(Status status);

  // Any thread but the loop's.
  Pending Push(const TableHandle& table, const TableCall& call);
  Pending Pull(const TableHandle& table, const TableCall& call);
  Pending PushPull(const std::shared_ptr<const TableHandle>& table, const TableCall& call);
  Pending Done(const TableHandle& table, const PushOptions& options);
  // Sync: a round or a phase of one, as the call's arrays and options say.
  struct RoundKind {
    client::RoundPhase phase = client::RoundPhase::kWhole;
    bool pull_after = false;
  };
  Pending Round(const TableHandle& table, const TableCall& call, const RoundKind& kind);
  Pending Contribute(const TableHandle& table, const TableCall& call);
  Result<std::vector<RowKey>> Keys(const TableHandle& table, const PullOptions& options);
  // Calls of this thread are collected from now on, until as many have ended it.
  std::shared_ptr<client::OpenTrip> BeginTrip();
  void EndTrip(const client::OpenTrip* trip);
  Result<wire::TableInfo> CreateTable(TableSpec spec);
  Result<std::vector<wire::TableInfo>> CreateTables(std::vector<TableSpec> specs);
  Status DropTable(const std::string& name);
  Result<uint64_t> NextRound(const TableHandle& table);
  Result<Client::Traffic> Traffic();
  Pending BeginBarrier();
  Status Finish();
  // Ends every call under way and the thread. Later calls get kCancelled.
  void Close(const Status& why);

  uint32_t rank() const { return rank_.load(std::memory_order_relaxed); }
  uint32_t world_size() const { return world_size_; }
  uint32_t server_count() const { return server_count_; }
  const std::string& cluster_id() const { return cluster_id_; }
  uint64_t incarnation() const { return incarnation_.load(std::memory_order_relaxed); }
  // Live workers that are in a view, by rank.
  std::vector<wire::WorkerInfo> live_workers() const;

 private:
  struct PushPullCall;
  struct Submission {
    int64_t deadline_us = 0;
    uint64_t reserved = 0;  // of unacked_; freed when the request has ended
    bool detached = false;  // uses none of the caller's memory
    bool awaited = false;   // the caller does nothing else until it has ended
    RoundInfo* info = nullptr;
    client::ErrorFeedback::Chosen* chosen = nullptr;  // kept back once the request is taken over
    std::shared_ptr<client::EarlyParts> early = nullptr;  // what is under way of it already
  };

  explicit ClientImpl(ClientOptions options);
  Status Start();
  int64_t DeadlineUs(int64_t timeout_ms) const;
  std::shared_ptr<const wire::ClusterState> Snapshot() const;
  // Begins a call: posts it to the loop, or adds it to this thread's trip, which `state` remembers.
  // Unless the client is closed.
  enum class Then { kGoesOn, kWaits };  // what the caller does
  Status Begin(Call<void()> call, Pending::State& state, Then then = Then::kGoesOn);
  // The trip of this thread; null if it has none. Requires mutex_.
  std::shared_ptr<client::OpenTrip> TripHere() const;
  void SendTripHere();
  void PostTrip(client::OpenTrip::Calls calls);
  Status BlockingCall(const std::function<void(int64_t deadline_us, client::ClientCore::Done done)>& start,
                      int64_t timeout_ms);

  static Status CheckCall(const TableHandle& table, const TableCall& call, const wire::ClusterState& state);
  static Status CheckGiven(const TableHandle& table, const TableCall& call);
  // The result refers to its arguments.
  static client::PartitionInput InputOf(const TableHandle& table, const TableCall& call,
                                        const wire::ClusterState& state);
  Status Reserve(const TableHandle& table, uint64_t bytes, int64_t deadline_us);
  // With WireFormat::kTopK: what is sent of a gradient takes its place in `input`.
  static client::ErrorFeedback::Chosen Choose(const TableHandle& table, client::PartitionInput& input);
  // Those that refer to the caller's memory. Weak, so that the core may see from the count whether
  // anybody else holds a frame.
  using WeakFrames = RecycledVector<std::weak_ptr<wire::Frame>>;
  static WeakFrames BorrowingFrames(const client::Request& request);
  Pending Submit(Result<client::Request> request, const Submission& submission);
  void SubmitEarly(client::Request part, int64_t deadline_us, uint64_t whole,
                   const std::shared_ptr<client::EarlyParts>& parts);
  Pending AsyncPushPull(const std::shared_ptr<const TableHandle>& table, const TableCall& call);

  // Loop thread.
  int64_t OnTick();
  void Publish();
  void Disown(std::span<const std::weak_ptr<wire::Frame>> frames);
  void StartBoth(const std::shared_ptr<PushPullCall>& both);
  void StartPull(const std::shared_ptr<PushPullCall>& both, client::Request pull);
  void ExpectPull(const std::shared_ptr<PushPullCall>& both, client::Request& pull);
  void GoOn(const std::shared_ptr<PushPullCall>& both);

  const ClientOptions options_;
  std::atomic<uint32_t> rank_{kNoRank};
  std::atomic<uint64_t> incarnation_{0};
  const LogLine log_;
  BufferPool pool_;
  client::UnackedBytes unacked_;
  const std::shared_ptr<client::UserWaits> waits_ = std::make_shared<client::UserWaits>();
  transport::Loop loop_;
  transport::TcpNetwork network_;
  std::unique_ptr<client::ClientCore> core_;
  // Loop thread only.
  int64_t calls_ = 0;  // under way
  uint64_t trip_ = 0;  // Request::trip of what is being submitted
  uint64_t pushes_in_parts_ = 0;  // Request::push of the last one
  std::shared_ptr<const wire::ClusterState> published_;

  struct TripOfThread {
    std::thread::id thread;
    uint32_t depth = 0;
    std::shared_ptr<client::OpenTrip> trip;
  };
  mutable std::mutex mutex_;  // guards the four below
  std::vector<TripOfThread> trips_;
  std::shared_ptr<const wire::ClusterState> snapshot_;
  bool closed_ = false;
  Status closed_why_;
  std::mutex close_mutex_;  // one Close at a time

  uint32_t world_size_ = 0, server_count_ = 0;  // constant after Connect
  std::string cluster_id_;

  static constexpr uint32_t kNoRank = ~uint32_t{0};
};

}  // namespace cairn
