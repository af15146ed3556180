#include "scheduler/node/scheduler_node.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "base/log.h"
#include "scheduler/core/known_connections.h"
#include "scheduler/core/leadership.h"
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
constexpr int64_t kLongWaitUs = 20'000;  // of a call that writes: a disk's or etcd's hesitation

uint64_t RandomNumber() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

class Node final : public SchedulerNode, private Candidacy::Listener {
 public:
  explicit Node(SchedulerNodeOptions options)
      : options_(std::move(options)),
        log_(options_.log ? options_.log : ToStandardError("cairn scheduler")),
        loop_("cairn-sched"),
        network_(loop_, pool_,
                 {.on_connected = [](ConnId) {},
                  .on_message = [this](ConnId conn, wire::InFrame& frame) { OnMessage(conn, frame); },
                  .on_disconnect = [this](ConnId conn) { OnDisconnect(conn); }},
                 {.max_accepted_body_bytes = kMaxBodyToScheduler, .accepts = wire::IsForNodes, .log = log_}) {
  }

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

  Status StartScheduler() {
    auto scheduler = Scheduler::Start(options_.core, *store_, network_, pool_, Loop::NowUs(), log_);
    if (!scheduler.ok()) return scheduler.status();
    scheduler_ = std::move(*scheduler);
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
    loop_.Post([this, leader] { Follow(leader); });
  }
  void OnWon(int64_t revision) override {
    loop_.Post([this, revision] { Lead(revision); });
  }
  void OnEtcd(bool heard) override {
    loop_.Post([this, heard] { NoteEtcd(heard); });
  }
  void OnLost(Status why) override {
    loop_.Post([this, why] { EndNow(why); });
  }

  // Everything below runs on the loop.

  void Follow(const std::string& leader) {
    if (leader_ == leader) return;
    leader_ = leader;
    if (!leader.empty()) log_("standing by: the scheduler at " + leader + " leads");
  }

  void Lead(int64_t revision) {
    if (result_) return;
    leadership_.OnWon();
    log_("this scheduler leads (revision " + std::to_string(revision) + " of etcd)");
    kv_ = std::make_unique<EtcdGateway>(options_.etcd.members);
    EtcdStoreOptions store;
    store.prefix = options_.etcd.prefix;
    store.leader_revision = revision;
    store.now_us = Loop::NowUs;
    store.pause = [](int64_t us) { std::this_thread::sleep_for(std::chrono::microseconds(us)); };
    store_ = std::make_unique<EtcdStore>(*kv_, std::move(store));
    if (Status started = StartScheduler(); !started.ok()) return EndNow(started);
    LookForEnd();
  }

  // Without etcd nothing can be decided, and another one may lead already: nodes that stay here would
  // be missed there. So they are sent away; whoever finds no other leader comes again.
  void NoteEtcd(bool heard) {
    if (result_ || !leadership_.OnEtcd(heard)) return;
    log_(!heard
             ? "etcd has not answered for so long that another scheduler may lead: this one stops answering"
             : "etcd answers again, and this scheduler still leads");
    if (!heard || !scheduler_) return;
    for (ConnId conn : connections_.TakeEnded())
      Call([&](int64_t now_us) { scheduler_->OnDisconnect(conn, now_us); });
  }

  bool has_etcd() const { return !options_.etcd.members.empty(); }
  bool leads() const { return scheduler_ != nullptr && (!has_etcd() || leadership_.answers()); }

  void SendAway(ConnId conn) {
    const std::string where = leader_.empty() ? "; nobody leads yet" : "; the leader is at " + leader_;
    const wire::Refusal refusal{0, Code::kUnavailable,
                                leadership_.away() ? "this scheduler can't reach etcd, another one may lead"
                                                   : "this scheduler is a standby" + where};
    network_.Send(conn, wire::EncodeControl(refusal, pool_));
    network_.Close(conn);
    connections_.SendAway(conn);
  }

  // Whoever holds the key and hears nobody keeps those who could lead from it.
  void Resign() {
    log_("nobody is heard, so another scheduler should lead: this one stands again when a node finds it");
    candidate_->Resign();
    leadership_.Resign(Loop::NowUs());
    for (ConnId conn : connections_.TakeAll()) network_.Close(conn);
    scheduler_.reset();
    store_.reset();
    kv_.reset();
  }

  void OnMessage(ConnId conn, wire::InFrame& frame) {
    if (result_) return;
    if (leadership_.OnFound()) candidate_->Stand();
    if (!leads()) return SendAway(conn);
    if (has_etcd()) connections_.Deliver(conn);
    Call([&](int64_t now_us) { scheduler_->OnMessage(conn, frame, now_us); });
  }

  void OnDisconnect(ConnId conn) {
    if (result_) return;
    if (has_etcd() && !connections_.End(conn, leads())) return;
    Call([&](int64_t now_us) { scheduler_->OnDisconnect(conn, now_us); });
  }

  // What was sent to the scheduler while it waited for etcd is still in the sockets.
  template <class Function>
  void Call(Function function) {
    const int64_t start_us = Loop::NowUs();
    function(start_us);
    if (const int64_t waited_us = Loop::NowUs() - start_us; waited_us >= kLongWaitUs)
      scheduler_->OnWaited(waited_us);
    LookForEnd();
  }

  int64_t OnTick() {
    if (!result_) {
      if (leadership_.OnTick(Loop::NowUs())) candidate_->Stand();
      if (!leads()) return kTickUs;
      Call([&](int64_t now_us) { scheduler_->OnTick(now_us); });
      if (!result_ && has_etcd() && scheduler_->cut_off()) {
        Resign();
        return kTickUs;
      }
      return std::min(kTickUs, scheduler_->next_tick_us());
    }
    if (network_.alive() == 0 || Loop::NowUs() >= give_up_us_) end_.Set(*result_);
    return kEndTickUs;
  }

  void LookForEnd() {
    if (Status fatal = scheduler_->fatal(); !fatal.ok()) return EndNow(fatal);
    if (!scheduler_->finished()) return;
    const wire::ClusterState& state = scheduler_->state();
    if (!result_) final_status_ = scheduler_->StatusJson(Loop::NowUs());
    End(state.phase == wire::Phase::kFailed ? Status(Code::kJobFailed, state.failure) : Status::Ok());
  }

  // Nothing may be told after a failed append, or once another one leads: nothing is flushed either.
  void EndNow(const Status& why) {
    if (result_) return;
    result_ = why;
    if (listener_) listener_->Close();
    end_.Set(why);
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
  std::unique_ptr<EtcdGateway> kv_;  // of the store
  std::unique_ptr<MetaStore> store_;
  std::unique_ptr<Scheduler> scheduler_;
  wire::Endpoint endpoint_;
  std::string leader_;  // while standing by: where the leader is, empty if that is not known
  Leadership leadership_{options_.core.lost_after_us};  // with etcd
  KnownConnections connections_;                        // with etcd
  std::optional<Status> result_;                        // set: over, or flushing
  int64_t give_up_us_ = 0;
  std::string final_status_;  // written before end_ is set, read after
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
