#include "cairn/embedded.h"

#include <string>
#include <utility>
#include <vector>

#include "cluster/environment/environment.h"
#include "cluster/environment/scheduler_settings.h"
#include "scheduler/node/scheduler_node.h"
#include "server/node/server_node.h"
#include "transport/tcp/sockets.h"

namespace cairn {

// The servers go first, then the scheduler that they report to.
class EmbeddedCluster::Impl {
 public:
  wire::Endpoint scheduler_endpoint;  // as this process reaches it
  std::unique_ptr<scheduler::SchedulerNode> scheduler;
  std::vector<std::unique_ptr<server::ServerNode>> servers;
};

Result<EmbeddedOptions> EmbeddedOptions::FromEnvironment() {
  // Settings only: who this process is, and where another cluster is, means nothing here.
  cluster::Variables variables = cluster::ProcessVariables();
  const std::string cluster_id = variables["CAIRN_CLUSTER_ID"];
  cluster::RemoveRoleVariables(variables);
  const Result<cluster::Environment> environment = cluster::ReadEnvironment(variables);
  if (!environment.ok()) return environment.status();
  EmbeddedOptions options;
  options.threads_per_server = environment->server_threads.value_or(options.threads_per_server);
  options.slots = environment->slots.value_or(options.slots);
  options.cluster_id = cluster_id;
  scheduler::SchedulerOptions core;
  cluster::ApplySettings(*environment, core);
  options.heartbeat_ms = core.heartbeat_us / 1000;
  options.dead_after_ms = core.dead_after_us / 1000;
  options.lost_after_ms = core.lost_after_us / 1000;
  options.rejoin_grace_ms = core.rejoin_grace_us / 1000;
  options.deadlock_after_ms = core.deadlock_after_us / 1000;
  return options;
}

EmbeddedCluster::EmbeddedCluster(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
EmbeddedCluster::~EmbeddedCluster() = default;

Result<std::unique_ptr<EmbeddedCluster>> EmbeddedCluster::Start(const EmbeddedOptions& options) {
  if (options.servers == 0 || options.workers == 0) {
    return Status(Code::kInvalidArgument, "an embedded cluster needs at least one server and one worker");
  }
  // The nodes keep quiet: what matters to the user reaches a client as an error or a line of its log.
  const auto silent = [](const std::string&) {};
  const std::string host = options.host.empty() ? transport::LoopbackHost() : options.host;
  auto impl = std::make_unique<Impl>();
  scheduler::SchedulerNodeOptions scheduler;
  scheduler.core.expected_servers = options.servers;
  scheduler.core.expected_workers = options.workers;
  scheduler.core.slot_count = options.slots;
  scheduler.core.cluster_id = options.cluster_id;
  scheduler.core.heartbeat_us = options.heartbeat_ms * 1000;
  scheduler.core.dead_after_us = options.dead_after_ms * 1000;
  scheduler.core.lost_after_us = options.lost_after_ms * 1000;
  scheduler.core.rejoin_grace_us = options.rejoin_grace_ms * 1000;
  scheduler.core.deadlock_after_us = options.deadlock_after_ms * 1000;
  scheduler.host = host;
  scheduler.port = options.port;
  scheduler.log = silent;
  auto started = scheduler::SchedulerNode::Start(std::move(scheduler));
  if (!started.ok()) return started.status();
  impl->scheduler = std::move(*started);
  impl->scheduler_endpoint = impl->scheduler->endpoint();
  if (transport::IsWildcard(host)) impl->scheduler_endpoint.host = transport::LoopbackHost();
  for (uint32_t i = 0; i < options.servers; ++i) {
    server::ServerNodeOptions server;
    server.control.scheduler = impl->scheduler_endpoint;
    server.control.cluster_id = options.cluster_id;
    server.control.wanted_rank = static_cast<int32_t>(i);
    server.control.heartbeat_us = options.heartbeat_ms * 1000;
    server.host = host;
    server.advertise_host = options.advertise_host;
    server.threads = options.threads_per_server;
    server.log = silent;
    auto node = server::ServerNode::Start(std::move(server));
    if (!node.ok()) return node.status();
    impl->servers.push_back(std::move(*node));
  }
  return std::unique_ptr<EmbeddedCluster>(new EmbeddedCluster(std::move(impl)));
}

ClientOptions EmbeddedCluster::ClientOptionsFor(int32_t rank) const {
  ClientOptions options;
  options.scheduler_host = impl_->scheduler_endpoint.host;
  options.scheduler_port = scheduler_port();
  options.rank = rank;
  return options;
}

const std::string& EmbeddedCluster::scheduler_host() const { return impl_->scheduler_endpoint.host; }
uint16_t EmbeddedCluster::scheduler_port() const { return impl_->scheduler_endpoint.port; }
Status EmbeddedCluster::Wait() { return impl_->scheduler->Wait(); }
void EmbeddedCluster::Stop() { impl_->scheduler->Stop(); }

}  // namespace cairn
