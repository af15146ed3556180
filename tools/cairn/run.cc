// cairn run: a whole job on this machine.
#include <memory>

#include "commands.h"
#include "launcher.h"

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
  }
  i = std::min(i, arguments.size());
  return {i, i};
}

void AddRun(CLI::App& app, const std::vector<std::string>& program, int& exit_code) {
  auto* command = app.add_subcommand("run", "Runs a whole job on this machine");
  command->footer(
      "cairn run [OPTIONS] [--] PROGRAM [ARGUMENTS]\n\n"
      "A scheduler, N servers and M workers, each worker being your program. Everything after the first\n"
      "word that is no option is the program and its arguments; the -- is optional.\n\n"
      "  cairn run -s 2 -w 4 -- ./trainer --epochs 3\n"
      "  cairn run -s 1 -w 2 train.py --epochs 3\n\n"
      "Output is merged line by line behind a prefix. Ctrl-C ends all, a second one kills. A worker\n"
      "killed by a signal is started again; one that exits with an error ends the job. The exit code is\n"
      "the workers'. Workers find CAIRN_* variables, and RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and\n"
      "MASTER_PORT. docs/command-line.md has the whole story.");
  auto options = std::make_shared<LaunchOptions>();
  cluster::SuperviseOptions& supervise = options->supervise;
  command->add_option("-s,--servers", supervise.servers, "servers (1)")
      ->type_name("N")
      ->check(Within(1, 65535));
  command->add_option("-w,--workers", supervise.workers, "workers (1)")
      ->type_name("M")
      ->check(Within(1, 65535));
  command
      ->add_option(
          "--max-restarts", supervise.max_restarts,
          "restarts in the whole job, of workers and of the scheduler, after a death by a signal (3)")
      ->type_name("N");
  command->add_option("--threads", options->threads, "shard threads of each server (1)")
      ->type_name("N")
      ->check(Within(1, 1024));
  command->add_option("--log-dir", options->log_dir, "a folder for the output of each process, a file each")
      ->type_name("FOLDER");
  command->callback([&program, options, &exit_code] {
    options->program = program;
    exit_code = program.empty()
                    ? Complain("run: which program? For example: cairn run -s 2 -w 2 -- ./trainer")
                    : Launcher(*options, cluster::ProcessVariables()).Run();
  });
}

}  // namespace cairn::tool
