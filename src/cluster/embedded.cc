#include "cairn/embedded.h"

#include <string>
#include <utility>
#include <vector>

#include "scheduler/scheduler_node.h"
#include "server/server_node.h"

namespace cairn {

// The servers go first, then the scheduler that they report to.
class EmbeddedCluster::Impl {
 public:
  std::unique_ptr<scheduler::SchedulerNode> scheduler;
  std::vector<std::unique_ptr<server::ServerNode>> servers;
};

EmbeddedCluster::EmbeddedCluster(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
EmbeddedCluster::~EmbeddedCluster() = default;

Result<std::unique_ptr<EmbeddedCluster>> EmbeddedCluster::Start(const EmbeddedOptions& options) {
  if (options.servers == 0 || options.workers == 0) {
    return Status(Code::kInvalidArgument, "an embedded cluster needs at least one server and one worker");
  }
  // The nodes keep quiet: what matters to the user reaches a client as an error or a line of its log.
  const auto silent = [](const std::string&) {};
  auto impl = std::make_unique<Impl>();
  scheduler::SchedulerNodeOptions scheduler;
  scheduler.core.expected_servers = options.servers;
  scheduler.core.expected_workers = options.workers;
  scheduler.core.slot_count = options.slots;
  scheduler.log = silent;
  auto started = scheduler::SchedulerNode::Start(std::move(scheduler));
  if (!started.ok()) return started.status();
  impl->scheduler = std::move(*started);
  for (uint32_t i = 0; i < options.servers; ++i) {
    server::ServerNodeOptions server;
    server.control.scheduler = impl->scheduler->endpoint();
    server.control.wanted_rank = static_cast<int32_t>(i);
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
  options.scheduler_host = impl_->scheduler->endpoint().host;
  options.scheduler_port = scheduler_port();
  options.rank = rank;
  return options;
}

uint16_t EmbeddedCluster::scheduler_port() const { return impl_->scheduler->endpoint().port; }

}  // namespace cairn
