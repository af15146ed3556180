#include "scheduler/node/scheduler_node.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "scheduler/core/seat.h"
#include "scheduler/metastore/etcd_store.h"
#include "scheduler/metastore/local_log.h"
#include "scheduler/metastore/memory_store.h"
#include "scheduler/node/candidate_node.h"
#include "scheduler/node/etcd_gateway.h"
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

class Node final : public SchedulerNode, private Candidacy::Listener, private SchedulerSeat::Driver {
 public:
  explicit Node(SchedulerNodeOptions options)
      : options_(std::move(options)),
        log_(options_.log ? options_.log : ToStandardError("cairn scheduler")),
        loop_("cairn-sched"),
        network_(loop_, pool_,
                 {.on_connected = [](ConnId) {},
                  .on_message = [this](ConnId conn, wire::InFrame& frame) { seat_.OnMessage(conn, frame); },
                  .on_disconnect = [this](ConnId conn) { seat_.OnDisconnect(conn); }},
                 {.max_accepted_body_bytes = kMaxBodyToScheduler, .accepts = wire::IsForNodes, .log = log_}),
        seat_({.several = has_etcd(), .lost_after_us = options_.core.lost_after_us}, network_, pool_, log_,
              *this) {}

  // The candidate first: it posts to the loop.
  ~Node() override {
    candidate_.reset();
    loop_.Stop();
  }

  Status Run() {
    transport::RaiseFileLimit();
    options_.core.max_callers = static_cast<uint32_t>(
        std::min<uint64_t>(options_.core.max_callers, std::max<uint64_t>(transport::FileLimit() / 4, 4)));
    endpoint_ = options_.advertised;
    if (options_.listen) {
      auto listener = transport::Listener::Open(loop_, pool_,
                                                {.host = options_.host, .port = options_.port, .log = log_});
      if (!listener.ok()) return listener.status();
      listener_ = std::move(*listener);
      endpoint_ = listener_->endpoint();
    }
    options_.core.endpoint = endpoint_;
    options_.core.cluster_seed = RandomNumber();
    if (has_etcd() && !options_.state_dir.empty())
      return {Code::kInvalidArgument,
              "the scheduler's state can be in a directory or in etcd, not in both: leave one of them out"};
    if (!has_etcd()) {
      if (Status opened = OpenStore(); !opened.ok()) return opened;
      if (Status started = StartScheduler(); !started.ok()) return started;
    }
    if (listener_) {
      listener_->Start([this](transport::AcceptedConnection c) { network_.Adopt(std::move(c)); });
    }
    loop_.SetTick([this] { return OnTick(); });
    loop_.Start();
    if (has_etcd()) StandForElection();
    return Status::Ok();
  }

  wire::Endpoint endpoint() const override { return endpoint_; }

  void Adopt(transport::AcceptedConnection connection) override {
    auto held = std::make_shared<transport::AcceptedConnection>(std::move(connection));
    loop_.Post([this, held] { network_.Adopt(std::move(*held)); });
  }

  Status Wait() override { return end_.Wait(); }

  std::string final_status() const override { return seat_.final_status(); }

  void Stop() override {
    loop_.Post([this] { seat_.Stop(); });
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

  Status StartScheduler() {
    auto scheduler = Scheduler::Start(options_.core, *store_, network_, pool_, Loop::NowUs(), log_);
    if (!scheduler.ok()) return scheduler.status();
    seat_.Lead(std::move(*scheduler));
    return Status::Ok();
  }

  void StandForElection() {
    EtcdOptions& etcd = options_.etcd;
    if (etcd.prefix.empty())
      etcd.prefix = "/cairn" + (options_.core.cluster_id.empty() ? "" : "/" + options_.core.cluster_id);
    wire::Endpoint address = endpoint_;
    if (transport::IsWildcard(address.host)) {
      const Result<std::string> own = transport::LocalAddressTowards(etcd.members.front());
      address.host = own.ok() ? *own : "127.0.0.1";
    }
    log_("a candidate: the job's state is in etcd at " + ToString(etcd.members.front()) +
         " and so on, under " + etcd.prefix);
    candidate_ = CandidateNode::Start(etcd, ToString(address), *this, log_);
  }

  // Candidacy::Listener, on the candidate's thread.
  void OnStandby(const std::string& leader) override {
    loop_.Post([this, leader] { seat_.OnStandby(leader); });
  }
  void OnWon(int64_t revision) override {
    loop_.Post([this, revision] { Lead(revision); });
  }
  void OnEtcd(bool heard) override {
    loop_.Post([this, heard] { seat_.OnEtcd(heard); });
  }
  void OnLost(Status why) override {
    loop_.Post([this, why] { seat_.OnLost(why); });
  }

  // Everything below runs on the loop.

  void Lead(int64_t revision) {
    if (seat_.over()) return;
    seat_.OnWon();
    log_("this scheduler leads (revision " + std::to_string(revision) + " of etcd)");
    kv_ = std::make_unique<EtcdGateway>(options_.etcd.members);
    EtcdStoreOptions store;
    store.prefix = options_.etcd.prefix;
    store.leader_revision = revision;
    store.now_us = Loop::NowUs;
    store.pause = [](int64_t us) { std::this_thread::sleep_for(std::chrono::microseconds(us)); };
    store_ = std::make_unique<EtcdStore>(*kv_, std::move(store));
    if (Status started = StartScheduler(); !started.ok()) seat_.OnNotStarted(started);
  }

  bool has_etcd() const { return !options_.etcd.members.empty(); }

  // SchedulerSeat::Driver.
  int64_t NowUs() const override { return Loop::NowUs(); }
  void Stand() override { candidate_->Stand(); }
  void StandBack() override { candidate_->Resign(); }
  void EndReign(std::unique_ptr<Scheduler> scheduler) override {
    scheduler.reset();
    store_.reset();
    kv_.reset();
  }
  // The last frames leave first; OnTick says when.
  void OnOver(const Status& why, bool at_once) override {
    if (listener_) listener_->Close();
    if (at_once) return end_.Set(why);
    give_up_us_ = Loop::NowUs() + transport::kLastFlushUs;
    network_.CloseAll();
  }

  int64_t OnTick() {
    seat_.OnTick();
    if (!seat_.over()) return seat_.NextTickUs(kTickUs);
    if (network_.alive() == 0 || Loop::NowUs() >= give_up_us_) end_.Set(seat_.result());
    return kEndTickUs;
  }

  SchedulerNodeOptions options_;
  const LogLine log_;
  BufferPool pool_;
  Loop loop_;
  transport::TcpNetwork network_;
  std::unique_ptr<transport::Listener> listener_;
  std::unique_ptr<EtcdGateway> kv_;  // of the store
  std::unique_ptr<MetaStore> store_;
  wire::Endpoint endpoint_;
  SchedulerSeat seat_;  // its final status is read when end_ is set
  int64_t give_up_us_ = 0;
  transport::NodeEnd end_;
  std::unique_ptr<CandidateNode> candidate_;  // with etcd
};
}  // namespace

Result<std::unique_ptr<SchedulerNode>> SchedulerNode::Start(SchedulerNodeOptions options) {
  auto node = std::make_unique<Node>(std::move(options));
  if (Status started = node->Run(); !started.ok()) return started;
  return std::unique_ptr<SchedulerNode>(std::move(node));
}

}  // namespace cairn::scheduler
