// cairn run: a whole job on this machine, or this machine's share of one.
#include <algorithm>
#include <memory>

#include "commands.h"
#include "launcher.h"
#include "progress.h"
#include "wire/cluster_state.h"

namespace cairn::tool {

ProgramPlace ProgramStart(const CLI::App& run, const std::vector<std::string>& arguments) {
  size_t i = 0;
  while (i < arguments.size()) {
    const std::string& word = arguments[i];
    if (word == "--") return {i, i + 1};
    if (word.size() < 2 || word[0] != '-') break;
    const CLI::Option* option = run.get_option_no_throw(word);
    // "-s2" and "--servers=2" carry their value; "-s 2" does not.
    i += option != nullptr && option->get_expected_max() > 0 ? 2 : 1;
    const bool module = word == "-m" || word == "--module" || word.starts_with("--module=") ||
                        (word.starts_with("-m") && word[2] != '\0');
    if (module) break;
  }
  i = std::min(i, arguments.size());
  return {i, i};
}

namespace {

void AddNodeOptions(CLI::App& command, LaunchOptions& options) {
  command.add_option("--nnodes", options.nodes.nodes, "machines of the job (1); each runs its own cairn run")
      ->type_name("N")
      ->check(Within(1, 4096));
  command.add_option("--node-rank", options.nodes.node_rank, "which of them this is, from 0 (0)")
      ->type_name("RANK");
  auto* master = command
                     .add_option("--master-addr", options.nodes.master_addr,
                                 "address of node 0, which has the scheduler; the same on every node")
                     ->type_name("HOST");
  command
      .add_option("--master-port", options.nodes.master_port,
                  "port of the scheduler (29500 with --master-addr, else any free one); the port after it is "
                  "torch.distributed's")
      ->type_name("PORT")
      ->check(Within(1, 65534));
  command
      .add_option("--job-id", options.nodes.job_id,
                  "name of the job, the same on every node (made from the master's address)")
      ->type_name("NAME");
  command
      .add_option("--local-addr", options.nodes.local_addr,
                  "address by which other nodes reach this one's servers (that of the interface towards the "
                  "master)")
      ->type_name("ADDRESS")
      ->needs(master);
  command
      .add_option_function<int64_t>(
          "--join-timeout", [&options](int64_t seconds) { options.supervise.join_grace_ms = seconds * 1000; },
          "seconds that nodes wait for each other (600)")
      ->type_name("SECONDS")
      ->check(Within(1, 2'000'000));
}

void AddOutputOptions(CLI::App& command, LaunchOptions& options) {
  auto* folder =
      command
          .add_option("--log-dir", options.log_dir,
                      "folder for the output of each process, a file each (a new one for each run in "
                      "~/.local/state/cairn/runs, of which the newest 20 are kept)")
          ->type_name("FOLDER");
  command.add_flag("--no-logs", options.no_logs, "keep no logs")->excludes(folder);
  auto* shown = command.add_flag_callback(
      "--progress", [&options] { options.progress = true; },
      "progress at the bottom of any terminal, even a dumb one");
  command
      .add_flag_callback(
          "--no-progress", [&options] { options.progress = false; },
          "no progress line (it is redrawn on a terminal; elsewhere it comes now and then)")
      ->excludes(shown);
  command
      .add_option("--progress-every", options.progress_every_s,
                  "seconds between the lines of progress where there is no terminal (30)")
      ->type_name("SECONDS")
      ->check(Within(0.1, 1e6));
}

int RunJob(LaunchOptions options) {
  if (options.program.empty() && options.module.empty()) {
    Complain("run: which program? For example: cairn run -s 2 -w 2 train.py");
    return kUsageError;
  }
  options.supervise.nodes = options.nodes.nodes;
  options.supervise.node_rank = options.nodes.node_rank;
  const uint64_t nodes = options.nodes.nodes;
  constexpr uint64_t kMaxNodes = 65'535;
  if (nodes * options.supervise.servers > kMaxNodes || nodes * options.supervise.workers > kMaxNodes) {
    Complain("run: a job has at most 65535 servers and as many workers, on all nodes together");
    return kUsageError;
  }
  const cluster::Variables variables = cluster::ProcessVariables();
  // How many owners a partition has decides what the death of a server means, until the scheduler answers.
  cluster::Variables settings = variables;
  cluster::RemoveRoleVariables(settings);
  const Result<cluster::Environment> environment = cluster::ReadEnvironment(settings);
  if (!environment.ok()) return Complain("run: " + environment.status().message());
  const uint64_t servers = nodes * options.supervise.servers;
  const uint32_t asked = options.replicas ? *options.replicas : environment->replicas.value_or(0);
  options.supervise.replicas = static_cast<uint32_t>(std::min<uint64_t>(asked != 0 ? asked : 2, servers));
  if (asked > servers) {
    Complain("run: with " + Counted(servers, "server") + " each partition has " + std::to_string(servers) +
             (servers == 1 ? " copy" : " copies") + ", not " + std::to_string(asked));
  }
  if (options.min_in_sync.value_or(1) > options.supervise.replicas) {
    Complain("run: --min-in-sync " + std::to_string(*options.min_in_sync) + ", but a partition has " +
             Counted(options.supervise.replicas, "owner") +
             " (--replicas, --servers): nothing would ever be acknowledged");
    return kUsageError;
  }
  return Launcher(std::move(options), variables).Run();
}

}  // namespace

void AddRun(CLI::App& app, const std::vector<std::string>& program, int& exit_code) {
  auto* command = app.add_subcommand("run", "Runs a whole job on this machine, or a machine's share of one");
  command->footer(
      "cairn run [OPTIONS] [--] PROGRAM [ARGUMENTS]\n"
      "cairn run [OPTIONS] -m MODULE [ARGUMENTS]\n\n"
      "A scheduler, N servers and M workers, each worker being your program. Everything after the first\n"
      "word that is no option is the program and its arguments; the -- is optional. A .py file is run by\n"
      "$CAIRN_PYTHON, or the active virtual environment's Python, or the one beside cairn, or python3.\n\n"
      "  cairn run -s 1 -w 2 train.py --epochs 3\n"
      "  cairn run -s 2 -w 4 -- ./trainer --epochs 3\n"
      "  cairn run --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 -s 1 -w 2 train.py    (and rank 1)\n\n"
      "Output is merged line by line behind a prefix. Ctrl-C ends all, a second one kills. Who is killed\n"
      "by a signal is started again: workers, servers (with two or more, nothing is lost), the scheduler.\n"
      "A worker that exits with an error ends the job, and its traceback comes last. The exit code is the "
      "workers'. Workers find CAIRN_* variables, and torch's: RANK,\n"
      "LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT; and OMP_NUM_THREADS, their share\n"
      "of the cores, unless it is set. docs/reference/command-line.md has the whole story.");
  auto options = std::make_shared<LaunchOptions>();
  cluster::SuperviseOptions& supervise = options->supervise;
  command->add_option("-s,--servers", supervise.servers, "servers, on each node (1)")
      ->type_name("N")
      ->check(Within(1, 65535));
  command->add_option("-w,--workers", supervise.workers, "workers, on each node (1)")
      ->type_name("M")
      ->check(Within(1, 65535));
  command->add_option("-m,--module", options->module, "run a Python module, as python -m does")
      ->type_name("MODULE");
  command
      ->add_option_function<std::string>(
          "--max-restarts",
          [&supervise](const std::string& text) {
            const Result<cluster::RestartLimit> limit = cluster::ParseRestartLimit(text);
            if (!limit.ok()) throw CLI::ValidationError("--max-restarts", limit.status().message());
            supervise.max_restarts = *limit;
          },
          "restarts after a death by a signal: N/TIME is so many of each process within the time (3/10min; "
          "s, "
          "min, h or d), N alone so many in the whole job, of workers, of servers and of the scheduler")
      ->type_name("N[/TIME]");
  command
      ->add_option(
          "--replicas", options->replicas,
          "servers that have a copy of each partition (2 where there are two servers or more; 1: the "
          "death of a server ends the job)")
      ->type_name("N")
      ->check(Within<uint32_t>(1, wire::kMaxBackups));
  command
      ->add_option("--min-in-sync", options->min_in_sync,
                   "nothing is acknowledged while fewer servers than this have it (1)")
      ->type_name("N")
      ->check(Within<uint32_t>(1, wire::kMaxBackups));
  command
      ->add_option(
          "--slots", options->slots,
          "partitions of the tables, fixed for the job (256): more of them for very large tables or very "
          "many servers")
      ->type_name("N")
      ->check(Within(1, 65536));
  command->add_option("--threads", options->threads, "shard threads of each server (1)")
      ->type_name("N")
      ->check(Within(1, 1024));
  AddOutputOptions(*command, *options);
  AddNodeOptions(*command, *options);
  command->callback([&program, options, &exit_code] {
    options->program = program;
    exit_code = RunJob(*options);
  });
}

}  // namespace cairn::tool
