// cairn: the command line. Subcommands in files of their own; docs/reference/command-line.md has them all.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>

#include "cairn/version.h"
#include "commands.h"
#include "guard.h"

namespace cairn::tool {

void PrintLine(const std::string& line) {
  const std::string text = line + "\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

int Complain(const std::string& message) {
  PrintLine("cairn: " + message);
  return 1;
}

int ComplainOfUsage(const std::string& message) {
  Complain(message);
  return kUsageError;
}

Result<cluster::Environment> EnvironmentOf(wire::Role role) {
  cluster::Variables variables = cluster::ProcessVariables();
  Result<cluster::Environment> environment = cluster::ReadEnvironment(variables);
  if (!environment.ok()) return environment;
  const std::string name = role == wire::Role::kScheduler ? "scheduler" : "server";
  if (!environment->role) {
    // Paddle's server finds itself in its list only if it knows that it is one.
    variables["CAIRN_ROLE"] = name;
    return cluster::ReadEnvironment(variables);
  }
  if (*environment->role != role) {
    return Result<cluster::Environment>(
        Code::kInvalidArgument,
        "this is `cairn " + name +
            "`, but the environment gives this process another role: look at CAIRN_ROLE, "
            "MS_ROLE, TRAINING_ROLE and DMLC_ROLE");
  }
  return environment;
}

}  // namespace cairn::tool

namespace {

// A descriptor 0, 1 or 2 that was closed would be given to the next socket or file.
void OpenStandardStreams() {
  int fd;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO) close(fd);
}

}  // namespace

int main(int argc, char** argv) {
  OpenStandardStreams();
  CLI::App app{
      "Cairn, a parameter server: servers hold the parameters, workers push gradients and pull weights, a\n"
      "scheduler brings them together.",
      "cairn"};
  app.footer(
      "A whole job on this machine:\n"
      "  cairn run -s 2 -w 2 train.py --my-flags\n"
      "How it is doing, and whether this machine is fit for it:\n"
      "  cairn status\n"
      "  cairn top\n"
      "  cairn doctor\n"
      "More servers or workers, or fewer, while it runs; and its end:\n"
      "  cairn scale --servers 4\n"
      "  cairn stop\n"
      "Over two machines, the same on both but for the rank:\n"
      "  cairn run --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 -s 1 -w 2 train.py --my-flags\n"
      "Or every process by itself:\n"
      "  cairn scheduler --host 0.0.0.0 --port 9000 --servers 2 --workers 2\n"
      "  cairn server --scheduler scheduler.example:9000\n"
      "  CAIRN_SCHED_HOST=scheduler.example CAIRN_SCHED_PORT=9000 ./trainer --my-flags");
  app.set_version_flag("--version", "cairn " CAIRN_VERSION);
  app.require_subcommand(1);
  int exit_code = 0;
  std::vector<std::string> program;
  cairn::tool::AddRun(app, program, exit_code);
  cairn::tool::AddScheduler(app, exit_code);
  cairn::tool::AddServer(app, exit_code);
  cairn::tool::AddStatus(app, exit_code);
  cairn::tool::AddTop(app, exit_code);
  cairn::tool::AddScale(app, exit_code);
  cairn::tool::AddStop(app, exit_code);
  cairn::tool::AddDoctor(app, exit_code);
  app.add_subcommand("guard", "")->group("")->callback([&] { exit_code = cairn::tool::RunGuard(); });
  const std::string first = argc > 1 ? argv[1] : "";
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  const bool known = std::any_of(commands.begin(), commands.end(),
                                 [&](const CLI::App* command) { return command->get_name() == first; });
  if (!first.empty() && first[0] != '-' && !known) {
    cairn::tool::Complain("no command is called '" + first +
                          "': run, status, top, scale, stop, doctor, scheduler or server");
    return cairn::tool::kUsageError;
  }
  if (first == "run") {
    const std::vector<std::string> arguments(argv + 2, argv + argc);
    const auto [options_end, program_begin] =
        cairn::tool::ProgramStart(*app.get_subcommand("run"), arguments);
    program.assign(arguments.begin() + static_cast<std::ptrdiff_t>(program_begin), arguments.end());
    argc = 2 + static_cast<int>(options_end);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);  // 0 for --help and --version
    exit_code = code == 0 ? 0 : cairn::tool::kUsageError;
  }
  // What was printed must have arrived: on a full disk an empty answer is no answer.
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout.flush()) && exit_code == 0)
    exit_code = cairn::tool::Complain("standard output can't be written to");
  return exit_code;
}
