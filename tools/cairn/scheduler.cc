// cairn scheduler: one scheduler as a process of its own.
#include <memory>
#include <optional>

#include "cluster/environment/scheduler_settings.h"
#include "commands.h"
#include "interrupt.h"
#include "job_files.h"
#include "meeting_place.h"
#include "progress.h"
#include "ready_words.h"
#include "scheduler/node/scheduler_node.h"
#include "transport/tcp/sockets.h"

namespace cairn::tool {
namespace {

struct SchedulerFlags {
  std::optional<std::string> host, state_dir, meta, cluster_id;
  std::optional<uint16_t> port;
  std::optional<uint32_t> servers, workers, slots, replicas, min_in_sync;
  std::optional<int64_t> heartbeat_ms, dead_after_ms, lost_after_ms, rejoin_grace_ms, deadlock_after_ms;
  int64_t lease_s = scheduler::EtcdOptions{}.ttl_s;
  int ready_fd = -1;
};

// A flag, or else the environment's word, or else what is there already.
template <class T, class U>
void Choose(T& out, const std::optional<U>& flag, const std::optional<U>& environment) {
  if (flag) {
    out = *flag;
  } else if (environment) {
    out = *environment;
  }
}

scheduler::SchedulerNodeOptions OptionsOf(const SchedulerFlags& flags,
                                          const cluster::Environment& environment) {
  scheduler::SchedulerNodeOptions options;
  // Where nodes look for the scheduler is where it listens, unless told otherwise. Of several it can't
  // tell which one it is.
  const bool one = environment.standbys.empty();
  Choose(options.host, flags.host, environment.host || !one ? environment.host : environment.scheduler_host);
  Choose(options.port, flags.port, environment.port || !one ? environment.port : environment.scheduler_port);
  Choose(options.state_dir, flags.state_dir, environment.state_dir);
  options.core.replicas = 0;  // as the number of servers suggests
  cluster::ApplySettings(environment, options.core);
  const auto set = [](auto& option, const auto& flag) {
    if (flag) option = *flag;
  };
  const auto set_ms = [](int64_t& option_us, const std::optional<int64_t>& flag_ms) {
    if (flag_ms) option_us = *flag_ms * 1000;
  };
  set(options.core.cluster_id, flags.cluster_id);
  set(options.core.expected_servers, flags.servers);
  set(options.core.expected_workers, flags.workers);
  set(options.core.slot_count, flags.slots);
  set(options.core.replicas, flags.replicas);
  set(options.core.min_in_sync, flags.min_in_sync);
  set_ms(options.core.heartbeat_us, flags.heartbeat_ms);
  set_ms(options.core.dead_after_us, flags.dead_after_ms);
  set_ms(options.core.lost_after_us, flags.lost_after_ms);
  set_ms(options.core.rejoin_grace_us, flags.rejoin_grace_ms);
  set_ms(options.core.deadlock_after_us, flags.deadlock_after_ms);
  options.log = PrintLine;
  return options;
}

// A flag says where the state is, or else the environment does; never both kinds at once.
Status ReadMeta(const SchedulerFlags& flags, const cluster::Environment& environment,
                scheduler::SchedulerNodeOptions& options) {
  const bool by_flag = flags.meta || flags.state_dir;
  const std::optional<std::string>& meta = by_flag ? flags.meta : environment.meta;
  if (!meta) {
    if (environment.standbys.empty()) return Status::Ok();
    return {Code::kInvalidArgument,
            "CAIRN_SCHEDULER names several schedulers: they need --meta etcd://HOST:PORT, where they find "
            "out which of them leads"};
  }
  if (by_flag ? flags.state_dir.has_value() : environment.state_dir.has_value())
    return {Code::kInvalidArgument,
            "the scheduler's state is in a folder (--state-dir) or in etcd (--meta), not in both"};
  Result<scheduler::EtcdOptions> etcd = cluster::ParseMeta(flags.meta ? "--meta" : "CAIRN_META", *meta);
  if (!etcd.ok()) return etcd.status();
  options.state_dir.clear();  // a flag overrides the environment's word
  options.etcd = *std::move(etcd);
  options.etcd.ttl_s = flags.lease_s;
  if (options.port != 0) return Status::Ok();
  return {Code::kInvalidArgument, "with --meta nodes must know where every scheduler is: give --port"};
}

int RunScheduler(const SchedulerFlags& flags) {
  const Result<cluster::Environment> environment = EnvironmentOf(wire::Role::kScheduler);
  if (!environment.ok()) return Complain(environment.status().message());
  scheduler::SchedulerNodeOptions options = OptionsOf(flags, *environment);
  if (Status meta = ReadMeta(flags, *environment, options); !meta.ok())
    return ComplainOfUsage(meta.message());
  Interrupt interrupt;
  Result<std::unique_ptr<scheduler::SchedulerNode>> node = scheduler::SchedulerNode::Start(options);
  if (!node.ok()) {
    Complain(node.status().message());
    return node.status().code() == Code::kInvalidArgument ? kUsageError : 1;
  }
  if (options.core.replicas > options.core.expected_servers) {
    PrintLine("--replicas " + std::to_string(options.core.replicas) + ": with " +
              Counted(options.core.expected_servers, "server") + " each partition has " +
              (options.core.expected_servers == 1 ? "one copy" : "as many copies") +
              ", until more servers come (cairn scale)");
  }
  interrupt.Arm([&node](int) { (*node)->Stop(); });
  JobFile job_file;
  if (flags.ready_fd >= 0) {
    TellLauncher(flags.ready_fd, std::to_string((*node)->endpoint().port));
  } else if (options.etcd.members.empty()) {
    // For `cairn status`; it is no reason to complain that it must be given the address.
    const wire::Endpoint listens = (*node)->endpoint();
    (void)job_file.Write(
        cluster::ProcessVariables(),
        {.scheduler = {transport::IsWildcard(listens.host) ? transport::LoopbackHost() : listens.host,
                       listens.port},
         .cluster_id = options.core.cluster_id,
         .command = OwnCommand()});
  }
  const Status status = (*node)->Wait();
  interrupt.Disarm();
  TellLauncher(flags.ready_fd, (*node)->final_status());
  if (interrupt.signal() != 0) return 128 + interrupt.signal();
  if (status.code() == Code::kJobFailed) return 1;  // the node has said why
  return status.ok() ? 0 : Complain("scheduler: " + status.message());
}

}  // namespace

void AddScheduler(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("scheduler", "Runs a scheduler until the job is over");
  command->footer(
      "What is not given comes from the environment (docs/reference/environment.md).\n"
      "  cairn scheduler --host 0.0.0.0 --port 9000 --servers 2 --workers 4 --state-dir /var/lib/cairn/job1\n"
      "  cairn scheduler --port 9000 --servers 2 --workers 4 --meta etcd://10.0.0.1:2379,10.0.0.2:2379/job1");
  auto flags = std::make_shared<SchedulerFlags>();
  command->add_option("--host", flags->host, "address to listen on (127.0.0.1; 0.0.0.0 for every interface)")
      ->type_name("ADDRESS");
  command->add_option("--port", flags->port, "port to listen on (0: any free one; it is logged)");
  command->add_option("-s,--servers", flags->servers, "servers that the job waits for (1)")
      ->check(Within(1, 65535));
  command->add_option("-w,--workers", flags->workers, "workers that the job waits for (1)")
      ->check(Within(1, 65535));
  command->add_option("--slots", flags->slots, "partitions of the tables (256)")->check(Within(1, 65536));
  command
      ->add_option("--replicas", flags->replicas,
                   "servers that have a copy of each partition (0: 2 where there are two servers or more)")
      ->check(Within<uint32_t>(0, wire::kMaxBackups));
  command
      ->add_option("--min-in-sync", flags->min_in_sync,
                   "nothing is acknowledged while fewer servers than this have it (1)")
      ->check(Within<uint32_t>(1, wire::kMaxBackups));
  command->add_option(
      "--state-dir", flags->state_dir,
      "folder of the scheduler's log: started again with it, a killed scheduler goes on with the same "
      "cluster (without it, a killed scheduler ends the job)");
  command
      ->add_option("--meta", flags->meta,
                   "etcd that has the state instead of a folder: several schedulers may run, and one leads")
      ->type_name("etcd://HOST:PORT,…/PREFIX");
  command
      ->add_option("--lease", flags->lease_s,
                   "with --meta: a leader that etcd does not hear for so long is replaced (5)")
      ->type_name("SECONDS")
      ->check(Within(2, 3600));
  command->add_option("--cluster-id", flags->cluster_id, "name that nodes must know to join (made up)");
  command->add_option("--heartbeat-ms", flags->heartbeat_ms, "how often nodes are expected to report (1000)")
      ->check(Within(1, 86'400'000));
  command->add_option("--dead-after-ms", flags->dead_after_ms, "a node not heard for so long is dead (5000)")
      ->check(Within(1, 86'400'000));
  command
      ->add_option(
          "--lost-after-ms", flags->lost_after_ms,
          "partitions are given up with their last owner when it has not been heard for so long (60000)")
      ->check(Within(1, 86'400'000));
  command
      ->add_option("--rejoin-grace-ms", flags->rejoin_grace_ms,
                   "a dead worker's rank is given up after so long, once all others are done (30000)")
      ->check(Within(0, 86'400'000));
  command
      ->add_option("--deadlock-after-ms", flags->deadlock_after_ms,
                   "workers that wait for each other so long get an error (60000, at least 5000; 0: never)")
      ->check(Within(0, 86'400'000));
  command->add_option("--ready-fd", flags->ready_fd)->group("");  // for cairn run: the port goes there
  command->callback([flags, &exit_code] { exit_code = RunScheduler(*flags); });
}

}  // namespace cairn::tool
