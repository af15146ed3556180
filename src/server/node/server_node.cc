#include "server/node/server_node.h"

#include <atomic>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "base/log.h"
#include "base/memory_limits.h"
#include "base/random.h"
#include "server/node/shard_node.h"
#include "table/memory/page_supply.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/loop.h"
#include "transport/tcp/node_end.h"
#include "transport/tcp/receipt_budget.h"
#include "transport/tcp/sockets.h"
#include "transport/tcp/tcp_network.h"
#include "wire/control.h"
#include "wire/data.h"

namespace cairn::server {
namespace {
using transport::AcceptedConnection;
using transport::Loop;

constexpr uint32_t kMaxThreads = 1024;  // as many as the scheduler lets in (kMaxServerThreads)
constexpr int64_t kTickUs = 100'000;
constexpr int64_t kFormingTickUs = 20'000;  // until registered: retries are short
constexpr int64_t kEndTickUs = 5'000;

class Node final : public ServerNode {
 public:
  explicit Node(ServerNodeOptions options)
      : options_(std::move(options)),
        log_(options_.log ? options_.log : ToStandardError([this] { return Prefix(); })),
        loop_("cairn-server"),
        network_(loop_, pool_,
                 {.on_connected = [this](ConnId conn) { OnConnected(conn); },
                  .on_message = [this](ConnId conn, wire::InFrame& frame) { OnMessage(conn, frame); },
                  .on_disconnect = [this](ConnId conn) { OnDisconnect(conn); }},
                 // It connects to schedulers alone.
                 {.most_answer =
                      [](ConnId, const wire::FrameHeader& header) { return wire::MostControlBytes(header); },
                  .log = log_}) {}

  // The control thread first: it posts to the shards.
  ~Node() override {
    loop_.Stop();
    shards_.clear();
  }

  Status Run() {
    if (options_.threads < 1 || options_.threads > kMaxThreads) {
      return {Code::kInvalidArgument, "a server has 1 to " + std::to_string(kMaxThreads) + " threads, not " +
                                          std::to_string(options_.threads)};
    }
    transport::RaiseFileLimit();
    auto listener =
        transport::Listener::Open(loop_, pool_, {.host = options_.host, .port = options_.port, .log = log_});
    if (!listener.ok()) return listener.status();
    listener_ = std::move(*listener);
    const uint16_t listening = listener_->endpoint().port;
    const Result<std::string> advertised = AdvertisedHost();
    if (!advertised.ok()) return advertised.status();
    endpoint_ = {*advertised, options_.advertise_port != 0 ? options_.advertise_port : listening};
    if (options_.on_listening) options_.on_listening(endpoint_);
    MakeShards();
    MakeControl();
    listener_->Start([this](AcceptedConnection accepted) { Route(std::move(accepted)); });
    for (auto& shard : shards_) shard->Start();
    loop_.SetTick([this] { return OnTick(); });
    loop_.Start();
    return Status::Ok();
  }

  wire::Endpoint endpoint() const override { return endpoint_; }
  Status Wait() override { return end_.Wait(); }
  bool has_peers() const override { return has_peers_.load(std::memory_order_relaxed); }
  bool job_begun() const override { return job_begun_.load(std::memory_order_acquire); }
  void Stop() override {
    loop_.Post([this] { End(Status::Ok()); });
  }
  void Drain() override {
    loop_.Post([this] {
      if (result_) return;
      control_->Drain(Loop::NowUs());
      LookForEnd();
    });
  }

 private:
  std::string Prefix() const {
    const int64_t index = index_.load(std::memory_order_relaxed);
    return index < 0 ? "cairn server" : "cairn server " + std::to_string(index);
  }

  Result<std::string> AdvertisedHost() const {
    if (!options_.advertise_host.empty()) return options_.advertise_host;
    if (!transport::IsWildcard(options_.host)) return options_.host;
    return transport::LocalAddressTowards(options_.control.scheduler);
  }

  void MakeShards() {
    reports_.resize(options_.threads);
    for (uint32_t thread = 0; thread < options_.threads; ++thread) {
      ShardOptions shard;
      shard.thread = thread;
      const int32_t wanted = options_.control.wanted_rank;
      shard.name = "server " + (wanted < 0 ? wire::ToString(endpoint_) : std::to_string(wanted)) +
                   " thread " + std::to_string(thread);
      auto on_report = [this](uint32_t from, ShardReport report) {
        loop_.Post([this, from, report = std::move(report)]() mutable { OnReport(from, std::move(report)); });
      };
      shard.log = log_;
      shard.pages = &pages_;
      shards_.push_back(std::make_unique<ShardNode>(shard, receipts_, on_report, log_));
    }
  }

  void MakeControl() {
    options_.control.endpoint = endpoint_;
    options_.control.threads = options_.threads;
    if (options_.control.uid == 0) options_.control.uid = RandomNumber();
    options_.control.memory_left = [files = MemoryFilesOfThisProcess()] { return ReadMemoryLeft(files); };
    ServerControl::Events events;
    events.on_registered = [this](uint32_t index, Incarnation incarnation) {
      index_.store(index, std::memory_order_relaxed);
      for (auto& shard : shards_) shard->Registered(index, incarnation);
    };
    events.on_state = [this](const std::shared_ptr<const wire::ClusterState>& state) {
      has_peers_.store(state->servers.size() > 1, std::memory_order_relaxed);
      if (state->phase == wire::Phase::kRunning) job_begun_.store(true, std::memory_order_release);
      for (auto& shard : shards_) shard->State(state);
    };
    control_ = ServerControl::Make(options_.control, network_, pool_, events, log_, Loop::NowUs());
  }

  // Everything below runs on the control loop.

  // The first frame of a connection says whose it is: a Hello picks the shard thread.
  void Route(AcceptedConnection accepted) {
    const wire::InFrame& first = accepted.first();
    if (first.header.type != wire::FrameType::kControl) {
      return Refuse(std::move(accepted),
                    {Code::kProtocol, "the first message of a connection must be a Hello"});
    }
    const auto message = wire::DecodeControl(first.header, first.body());
    if (!message.ok()) return Refuse(std::move(accepted), message.status());
    const auto* hello = std::get_if<wire::Hello>(&*message);
    const auto* replica = std::get_if<wire::ReplicaHello>(&*message);
    if (hello == nullptr && replica == nullptr) return RouteElsewhere(std::move(accepted));
    const uint32_t thread = hello != nullptr ? hello->thread : replica->to_thread;
    if (thread >= shards_.size()) {
      return Refuse(std::move(accepted),
                    {Code::kProtocol, "this server has " + std::to_string(shards_.size()) +
                                          " threads, not a thread " + std::to_string(thread)});
    }
    shards_[thread]->Adopt(std::move(accepted));
  }

  void RouteElsewhere(AcceptedConnection accepted) {
    if (options_.on_other_connection) return options_.on_other_connection(std::move(accepted));
    Refuse(std::move(accepted), {Code::kProtocol, "this is a server, not a scheduler: the scheduler is at " +
                                                      wire::ToString(options_.control.scheduler)});
  }

  void Refuse(AcceptedConnection accepted, const Status& why) {
    const wire::Refusal refusal{accepted.first().header.request_id, why.code(), why.message()};
    network_.Refuse(std::move(accepted), wire::EncodeControl(refusal, pool_));
  }

  void OnConnected(ConnId conn) {
    if (result_) return;
    control_->OnConnected(conn, Loop::NowUs());
    LookForEnd();
  }
  void OnMessage(ConnId conn, wire::InFrame& frame) {
    if (result_) return;
    control_->OnMessage(conn, frame, Loop::NowUs());
    LookForEnd();
  }
  void OnDisconnect(ConnId conn) {
    if (result_) return;
    control_->OnDisconnect(conn, Loop::NowUs());
    LookForEnd();
  }
  void OnReport(uint32_t thread, ShardReport report) {
    if (result_) return;
    reports_[thread] = std::move(report);
    control_->OnReports(reports_, Loop::NowUs());
    LookForEnd();
  }

  int64_t OnTick() {
    if (!result_) {
      control_->OnTick(Loop::NowUs());
      LookForEnd();
      return index_.load(std::memory_order_relaxed) < 0 ? kFormingTickUs : kTickUs;
    }
    if (network_.alive() == 0 || Loop::NowUs() >= give_up_us_) end_.Set(*result_);
    return kEndTickUs;
  }

  void LookForEnd() {
    if (control_->finished()) End(control_->result());
  }

  // The last frames leave first; OnTick says when.
  void End(Status result) {
    if (result_) return;
    result_ = std::move(result);
    give_up_us_ = Loop::NowUs() + transport::kLastFlushUs;
    listener_->Close();
    network_.CloseAll();
    for (auto& shard : shards_) shard->CloseConnections();
  }

  ServerNodeOptions options_;
  const LogLine log_;
  std::atomic<int64_t> index_{-1};  // among the servers, once registered
  std::atomic<bool> job_begun_{false}, has_peers_{false};
  BufferPool pool_;
  Loop loop_;
  transport::TcpNetwork network_;
  std::unique_ptr<transport::Listener> listener_;
  wire::Endpoint endpoint_;
  table::PageSupply pages_;  // outlives the shards
  transport::ReceiptBudget receipts_{
      transport::ReceiptLimitsFor(ReadMemoryLeft(MemoryFilesOfThisProcess()))};  // outlives the shards
  std::vector<std::unique_ptr<ShardNode>> shards_;
  std::vector<ShardReport> reports_;  // the newest of each thread
  std::unique_ptr<ServerControl> control_;
  std::optional<Status> result_;  // set: over, or flushing
  int64_t give_up_us_ = 0;
  transport::NodeEnd end_;
};
}  // namespace

Result<std::unique_ptr<ServerNode>> ServerNode::Start(ServerNodeOptions options) {
  auto node = std::make_unique<Node>(std::move(options));
  if (Status started = node->Run(); !started.ok()) return started;
  return std::unique_ptr<ServerNode>(std::move(node));
}

}  // namespace cairn::server
