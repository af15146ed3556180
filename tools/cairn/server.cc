// cairn server: one server as a process of its own. Where the environment is Paddle's and this is
// the first server of its list, it hosts the scheduler too, on the same port.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "base/random.h"
#include "cluster/environment/scheduler_settings.h"
#include "cluster/supervise/process_end.h"
#include "commands.h"
#include "drain.h"
#include "interrupt.h"
#include "own_address.h"
#include "ready_words.h"
#include "scheduler/node/scheduler_node.h"
#include "server/node/server_node.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/sockets.h"

namespace cairn::tool {
namespace {

struct ServerFlags {
  std::optional<std::string> scheduler, host, advertise, cluster_id;
  std::optional<uint16_t> port;
  std::optional<uint32_t> threads, rank;
  int64_t drain_timeout_s = 300;
  int ready_fd = -1;
  pid_t parent = 0;  // end with this process, which has started this one; 0: with nobody
};

using Endpoints = std::vector<wire::Endpoint>;

Result<Endpoints> SchedulersOf(const ServerFlags& flags, const cluster::Environment& environment) {
  if (flags.scheduler) return cluster::ParseEndpoints("--scheduler", *flags.scheduler);
  if (Status status = cluster::RequireScheduler(environment); !status.ok()) {
    return Result<Endpoints>(status.code(), status.message() + ", or give --scheduler HOST:PORT");
  }
  return environment.schedulers();
}

Result<server::ServerNodeOptions> OptionsOf(const ServerFlags& flags,
                                            const cluster::Environment& environment) {
  const Result<Endpoints> schedulers = SchedulersOf(flags, environment);
  if (!schedulers.ok()) return schedulers.status();
  server::ServerNodeOptions options;
  options.control.scheduler = schedulers->front();
  options.control.standbys.assign(schedulers->begin() + 1, schedulers->end());
  options.control.cluster_id = flags.cluster_id ? *flags.cluster_id : environment.cluster_id.value_or("");
  const std::optional<uint32_t> rank = flags.rank ? flags.rank : environment.rank;
  if (rank) options.control.wanted_rank = static_cast<int32_t>(*rank);
  if (environment.heartbeat_ms) options.control.heartbeat_us = *environment.heartbeat_ms * 1000;
  if (environment.connect_timeout_ms)
    options.control.register_deadline_us = *environment.connect_timeout_ms * 1000;
  const std::optional<std::string> host = flags.host ? flags.host : environment.host;
  options.host = host.value_or("");  // empty: the address that faces the scheduler (FindOwnAddress)
  options.port = flags.port ? *flags.port : environment.port.value_or(0);
  if (flags.advertise) {
    const bool with_port = flags.advertise->find(':') != std::string::npos;
    const Result<wire::Endpoint> endpoint =
        cluster::ParseEndpoint("--advertise", with_port ? *flags.advertise : *flags.advertise + ":0");
    if (!endpoint.ok()) return endpoint.status();
    options.advertise_host = endpoint->host;
    options.advertise_port = endpoint->port;
  }
  options.threads = flags.threads ? *flags.threads : environment.server_threads.value_or(1);
  options.control.uid = RandomNumber();
  options.log = PrintLine;
  return options;
}

// The scheduler inside Paddle's first server: it hears what comes in on the server's port.
Result<std::unique_ptr<scheduler::SchedulerNode>> HostScheduler(const cluster::Environment& environment) {
  scheduler::SchedulerNodeOptions options;
  options.listen = false;
  options.advertised = environment.scheduler();
  options.core.replicas = 0;  // as the number of servers suggests
  cluster::ApplySettings(environment, options.core);
  options.log = PrintLine;
  return scheduler::SchedulerNode::Start(std::move(options));
}

// A Python program that serves inside a call (fleet.run_server) must not leave its server behind.
// False if that program is gone already.
bool EndWith(pid_t parent) { return prctl(PR_SET_PDEATHSIG, SIGINT) == 0 && getppid() == parent; }

// The address that is to be advertised, where the user has not said it. A signal ends the wait, too.
Status FindOwnAddress(const Endpoints& schedulers, Interrupt& interrupt, server::ServerNodeOptions& options) {
  const bool wildcard = transport::IsWildcard(options.host);
  if (!wildcard || (!options.host.empty() && !options.advertise_host.empty())) return Status::Ok();
  Mutex mutex;
  Condition wake;
  interrupt.Arm([&](int) {
    const MutexLock lock(mutex);
    wake.WakeAll();
  });
  const auto pause = [&](int64_t ms) {
    const MutexLock lock(mutex);
    const auto until = Condition::Clock::now() + std::chrono::milliseconds(ms);
    while (interrupt.signal() == 0 && wake.WaitUntil(mutex, until)) continue;
    return interrupt.signal() == 0;
  };
  const Result<std::string> address = AwaitOwnAddress(
      schedulers,
      {.timeout_ms = options.control.register_deadline_us / 1000, .log = PrintLine, .pause = pause});
  interrupt.Disarm();
  if (!address.ok()) return address.status();
  if (options.host.empty()) {
    options.host = *address;
  } else {
    options.advertise_host = *address;
  }
  return Status::Ok();
}

int RunServer(const ServerFlags& flags) {
  if (flags.parent != 0 && !EndWith(flags.parent)) return Complain("who started this server is gone");
  const Result<cluster::Environment> environment = EnvironmentOf(wire::Role::kServer);
  if (!environment.ok()) return Complain(environment.status().message());
  Result<server::ServerNodeOptions> options = OptionsOf(flags, *environment);
  if (!options.ok()) return ComplainOfUsage(options.status().message());

  Interrupt interrupt;
  std::vector<wire::Endpoint> schedulers = {options->control.scheduler};
  schedulers.insert(schedulers.end(), options->control.standbys.begin(), options->control.standbys.end());
  if (Status found = FindOwnAddress(schedulers, interrupt, *options); !found.ok())
    return interrupt.signal() != 0 ? 128 + interrupt.signal() : Complain(found.message());
  OwnNames names{options->host, options->advertise_host};
  if (Status sensible = ExplainOwnNames(names, PrintLine); !sensible.ok())
    return ComplainOfUsage(sensible.message());
  options->advertise_host = names.advertise;
  std::unique_ptr<scheduler::SchedulerNode> hosted;
  if (environment->hosts_scheduler && !flags.scheduler) {
    Result<std::unique_ptr<scheduler::SchedulerNode>> started = HostScheduler(*environment);
    if (!started.ok()) return Complain(started.status().message());
    hosted = std::move(started).value();
    options->on_other_connection = [scheduler = hosted.get()](transport::AcceptedConnection connection) {
      scheduler->Adopt(std::move(connection));
    };
  }
  // Before it registers: if it dies, its launcher knows whose end to report.
  TellLauncher(flags.ready_fd, kUidWord + std::to_string(options->control.uid));
  options->on_listening = [ready_fd = flags.ready_fd](const wire::Endpoint& endpoint) {
    PrintLine("Server listening on " + wire::ToString(endpoint) +
              " selected port: " + std::to_string(endpoint.port));
    TellLauncher(ready_fd, wire::ToString(endpoint));
    if (ready_fd >= 0) close(ready_fd);
  };
  Result<std::unique_ptr<server::ServerNode>> node = server::ServerNode::Start(*std::move(options));
  if (!node.ok()) return Complain(node.status().message());
  Drain drain(**node, schedulers, flags.drain_timeout_s * 1000);
  interrupt.Arm([&node, &hosted, &drain](int signal) {
    // The scheduler in this process would go too, and nobody could move anything.
    if (signal == SIGTERM && !hosted) return drain.Begin();
    (*node)->Stop();
    if (hosted) hosted->Stop();
  });
  Status status = (*node)->Wait();
  // The others leave through the scheduler hosted here: it goes last, and this listener with it.
  if (hosted && interrupt.signal() == 0) {
    const Status scheduler_status = hosted->Wait();
    if (status.ok() && !scheduler_status.ok()) {
      status = scheduler_status;
      if (status.code() != Code::kJobFailed) Complain("scheduler: " + status.message());
    }
  }
  interrupt.Disarm();
  if (interrupt.signal() != 0 && !(drain.in_good_order() && status.ok())) return 128 + interrupt.signal();
  // The node has said why.
  if (status.code() == Code::kRetired)
    return cluster::kStartAgainCode;  // what it held is gone, a new one may come
  return status.ok() ? 0 : 1;
}

}  // namespace

void AddServer(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("server", "Runs a server until the job is over");
  command->footer(
      "What is not given comes from the environment (docs/reference/environment.md). It listens on loopback "
      "if the\n"
      "scheduler is there, otherwise on the interface that routes to the scheduler.\n"
      "  cairn server --scheduler 10.0.0.1:9000 --threads 4\n"
      "SIGTERM moves its partitions to other servers first, SIGINT ends it at once; so does a second "
      "signal.");
  auto flags = std::make_shared<ServerFlags>();
  command->add_option("--scheduler", flags->scheduler,
                      "HOST:PORT of the scheduler; of several, with commas between");
  command->add_option("--host", flags->host, "address to listen on")->type_name("ADDRESS");
  command->add_option("--port", flags->port, "port to listen on (0: any free one)");
  command->add_option("--advertise", flags->advertise,
                      "HOST or HOST:PORT that workers are told, where a proxy stands between");
  command->add_option("--threads", flags->threads, "shard threads (1)")->check(Within(1, 1024));
  command->add_option("--rank", flags->rank, "wanted index among the servers")->check(Within(0, 65534));
  command->add_option("--cluster-id", flags->cluster_id, "join only this cluster");
  command
      ->add_option("--drain-timeout", flags->drain_timeout_s,
                   "seconds that SIGTERM leaves for its partitions to move to other servers (300; 0: none)")
      ->type_name("SECONDS")
      ->check(Within(0, 1'000'000));
  command->add_option("--with-parent", flags->parent)->group("");  // for cairn.compat.fleet
  command->add_option("--ready-fd", flags->ready_fd)->group("");   // for cairn run: uid and address go there
  command->callback([flags, &exit_code] { exit_code = RunServer(*flags); });
}

}  // namespace cairn::tool
