#include "scheduler/scheduler_node.h"

#include <optional>
#include <random>
#include <utility>

#include "base/log.h"
#include "scheduler/metastore/local_log.h"
#include "scheduler/metastore/memory_store.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/loop.h"
#include "transport/tcp/node_end.h"
#include "transport/tcp/sockets.h"
#include "transport/tcp/tcp_network.h"

namespace cairn::scheduler {
namespace {
using transport::Loop;

constexpr int64_t kTickUs = 50'000;
constexpr int64_t kEndTickUs = 5'000;
// No message to a scheduler is larger.
constexpr uint32_t kMaxBodyToScheduler = uint32_t{1} << 20;

uint64_t RandomNumber() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

class Node final : public SchedulerNode {
 public:
  explicit Node(SchedulerNodeOptions options)
      : options_(std::move(options)),
        log_(options_.log ? options_.log : ToStandardError("cairn scheduler")),
        loop_("cairn-sched"),
        network_(loop_, pool_,
                 {.on_connected = [](ConnId) {},
                  .on_message = [this](ConnId conn, wire::InFrame& frame) { OnMessage(conn, frame); },
                  .on_disconnect = [this](ConnId conn) { OnDisconnect(conn); }},
                 {.max_accepted_body_bytes = kMaxBodyToScheduler, .log = log_}) {}

  ~Node() override { loop_.Stop(); }

  Status Run() {
    transport::RaiseFileLimit();
    endpoint_ = options_.advertised;
    if (options_.listen) {
      auto listener = transport::Listener::Open(loop_, pool_,
                                                {.host = options_.host, .port = options_.port, .log = log_});
      if (!listener.ok()) return listener.status();
      listener_ = std::move(*listener);
      endpoint_ = listener_->endpoint();
    }
    if (Status opened = OpenStore(); !opened.ok()) return opened;
    options_.core.endpoint = endpoint_;
    options_.core.cluster_seed = RandomNumber();
    auto scheduler = Scheduler::Start(options_.core, *store_, network_, pool_, Loop::NowUs(), log_);
    if (!scheduler.ok()) return scheduler.status();
    scheduler_ = std::move(*scheduler);
    if (listener_) {
      listener_->Start([this](transport::AcceptedConnection c) { network_.Adopt(std::move(c)); });
    }
    loop_.SetTick([this] { return OnTick(); });
    loop_.Start();
    return Status::Ok();
  }

  wire::Endpoint endpoint() const override { return endpoint_; }

  void Adopt(transport::AcceptedConnection connection) override {
    auto held = std::make_shared<transport::AcceptedConnection>(std::move(connection));
    loop_.Post([this, held] { network_.Adopt(std::move(*held)); });
  }

  Status Wait() override { return end_.Wait(); }

  std::string final_status() const override { return final_status_; }

  void Stop() override {
    loop_.Post([this] { End(Status::Ok()); });
  }

 private:
  Status OpenStore() {
    if (options_.state_dir.empty()) {
      store_ = std::make_unique<MemoryStore>();
      return Status::Ok();
    }
    auto log = LocalLog::Open(options_.state_dir);
    if (!log.ok()) return log.status();
    store_ = std::move(*log);
    return Status::Ok();
  }

  // Everything below runs on the loop.
  void OnMessage(ConnId conn, wire::InFrame& frame) {
    if (result_) return;
    scheduler_->OnMessage(conn, frame, Loop::NowUs());
    LookForEnd();
  }

  void OnDisconnect(ConnId conn) {
    if (result_) return;
    scheduler_->OnDisconnect(conn, Loop::NowUs());
    LookForEnd();
  }

  int64_t OnTick() {
    if (!result_) {
      scheduler_->OnTick(Loop::NowUs());
      LookForEnd();
      return kTickUs;
    }
    if (network_.alive() == 0 || Loop::NowUs() >= give_up_us_) end_.Set(*result_);
    return kEndTickUs;
  }

  void LookForEnd() {
    // Nothing may be told after a failed append, so there is nothing to flush either.
    if (Status fatal = scheduler_->fatal(); !fatal.ok()) {
      result_ = fatal;
      if (listener_) listener_->Close();
      return end_.Set(fatal);
    }
    if (!scheduler_->finished()) return;
    const wire::ClusterState& state = scheduler_->state();
    if (!result_) final_status_ = scheduler_->StatusJson(Loop::NowUs());
    End(state.phase == wire::Phase::kFailed ? Status(Code::kJobFailed, state.failure) : Status::Ok());
  }

  // The last frames leave first; OnTick says when.
  void End(Status result) {
    if (result_) return;
    result_ = std::move(result);
    give_up_us_ = Loop::NowUs() + transport::kLastFlushUs;
    if (listener_) listener_->Close();
    network_.CloseAll();
  }

  SchedulerNodeOptions options_;
  const LogLine log_;
  BufferPool pool_;
  Loop loop_;
  transport::TcpNetwork network_;
  std::unique_ptr<transport::Listener> listener_;
  std::unique_ptr<MetaStore> store_;
  std::unique_ptr<Scheduler> scheduler_;
  wire::Endpoint endpoint_;
  std::optional<Status> result_;  // set: over, or flushing
  int64_t give_up_us_ = 0;
  std::string final_status_;      // written before end_ is set, read after
  transport::NodeEnd end_;
};
}  // namespace

Result<std::unique_ptr<SchedulerNode>> SchedulerNode::Start(SchedulerNodeOptions options) {
  auto node = std::make_unique<Node>(std::move(options));
  if (Status started = node->Run(); !started.ok()) return started;
  return std::unique_ptr<SchedulerNode>(std::move(node));
}

}  // namespace cairn::scheduler
