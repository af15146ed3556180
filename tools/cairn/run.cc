// cairn run: a whole job on this machine.
#include <memory>

#include "commands.h"
#include "launcher.h"

namespace cairn::tool {

void AddRun(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand(
      "run",
      "Runs a whole job on this machine: a scheduler, N servers and M workers, each worker being your "
      "program.\n\n"
      "  cairn run -s 2 -w 4 -- ./trainer --epochs 3\n"
      "  cairn run -s 1 -w 2 train.py --epochs 3\n\n"
      "Everything after the first word that is no option is the program and its arguments; the -- is "
      "optional.\n"
      "Output is merged line by line with a prefix. Ctrl-C ends all, a second one kills. A worker killed by "
      "a\n"
      "signal is started again; one that exits with an error ends the job. The exit code is the workers'.\n"
      "Workers find CAIRN_* variables, and RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT.");
  auto options = std::make_shared<LaunchOptions>();
  cluster::SuperviseOptions& supervise = options->supervise;
  command->add_option("-s,--servers", supervise.servers, "servers (1)")->check(CLI::Range(1, 65535));
  command->add_option("-w,--workers", supervise.workers, "workers (1)")->check(CLI::Range(1, 65535));
  command->add_option(
      "--max-restarts", supervise.max_restarts,
      "how often, in the whole job, a worker or the scheduler is started again after it was killed by "
      "a signal (3)");
  command->add_option("--threads", options->threads, "shard threads of each server (1)")
      ->check(CLI::Range(1, 1024));
  command->add_option("--log-dir", options->log_dir,
                      "a folder for the output of each process, in a file of its own");
  command->prefix_command();
  command->callback([command, options, &exit_code] {
    options->program = command->remaining();
    if (!options->program.empty() && options->program.front() == "--")
      options->program.erase(options->program.begin());
    if (options->program.empty()) {
      exit_code = Complain("run: which program? For example: cairn run -s 2 -w 2 -- ./trainer");
      return;
    }
    if (options->program.front().starts_with("-")) {
      exit_code = Complain("run: unknown option " + options->program.front() + " (cairn run --help)");
      return;
    }
    exit_code = Launcher(*options, cluster::ProcessVariables()).Run();
  });
}

}  // namespace cairn::tool
