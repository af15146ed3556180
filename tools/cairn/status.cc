// cairn status: what the scheduler knows about the cluster, as tables or as JSON.
#include <cstdio>
#include <memory>
#include <optional>

#include "commands.h"
#include "job_choice.h"
#include "status_text.h"

namespace cairn::tool {
namespace {

struct StatusFlags {
  std::optional<std::string> scheduler;
  bool json = false;
  int64_t timeout_ms = 5'000;
};

int ShowStatus(const StatusFlags& flags) {
  const Result<wire::Endpoint> scheduler = ChooseScheduler(flags.scheduler);
  if (!scheduler.ok()) return Complain("status: " + scheduler.status().message());
  const Result<std::string> json = AskStatus(*scheduler, flags.timeout_ms);
  if (!json.ok()) return Complain("status: " + json.status().message());
  std::fputs(flags.json ? (*json + "\n").c_str() : StatusText(*json).c_str(), stdout);
  return 0;
}

}  // namespace

void AddStatus(CLI::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("status", "Shows nodes, partitions and their owners, tables, rounds and rates");
  command->footer(
      "Without an address: the scheduler that the environment names (CAIRN_SCHED_PORT and the like), or\n"
      "else the job that runs here.\n"
      "  cairn status\n"
      "  cairn status 10.0.0.1:9000\n"
      "  cairn status --json | jq .phase");
  auto flags = std::make_shared<StatusFlags>();
  command->add_option("scheduler", flags->scheduler, kSchedulerHelp);
  command->add_flag("--json", flags->json, "one JSON object instead of tables");
  command->add_option("--timeout-ms", flags->timeout_ms, "how long to wait for the answer (5000)")
      ->check(Within(1, 3'600'000));
  command->callback([flags, &exit_code] { exit_code = ShowStatus(*flags); });
}

}  // namespace cairn::tool
