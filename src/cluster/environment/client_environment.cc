// ClientOptions::FromEnvironment: a worker's options out of the variables (environment.h).
#include "cairn/client.h"
#include "cluster/environment/environment.h"

namespace cairn {

Result<ClientOptions> ClientOptions::FromEnvironment() {
  const Result<cluster::Environment> environment = cluster::ReadEnvironment(cluster::ProcessVariables());
  if (!environment.ok()) return environment.status();
  if (environment->role && *environment->role != wire::Role::kWorker) {
    return Result<ClientOptions>(Code::kInvalidArgument,
                                 std::string("the environment says that this process is a ") +
                                     (*environment->role == wire::Role::kServer ? "server" : "scheduler") +
                                     ", and only a worker connects as a client: start it with `cairn " +
                                     (*environment->role == wire::Role::kServer ? "server" : "scheduler") +
                                     "`");
  }
  if (const Status status = cluster::RequireScheduler(*environment); !status.ok()) return status;
  ClientOptions options;
  options.scheduler_host = environment->scheduler().host;
  options.scheduler_port = environment->scheduler().port;
  for (const wire::Endpoint& standby : environment->standbys)
    options.more_schedulers.push_back({standby.host, standby.port});
  options.cluster_id = environment->cluster_id.value_or("");
  if (environment->rank) options.rank = static_cast<int32_t>(*environment->rank);
  options.connect_timeout_ms = environment->connect_timeout_ms.value_or(options.connect_timeout_ms);
  options.call_timeout_ms = environment->call_timeout_ms.value_or(options.call_timeout_ms);
  return options;
}

}  // namespace cairn
