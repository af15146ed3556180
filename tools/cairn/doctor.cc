// cairn doctor: is this machine fit for a job, and if not, what to do.
#include "doctor.h"

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cairn/version.h"
#include "commands.h"

namespace cairn::tool {
namespace {

const char* Word(Health health) {
  return health == Health::kOk ? "ok" : health == Health::kWarn ? "warn" : "FAIL";
}

int Examine(bool json) {
  const cluster::Variables variables = cluster::ProcessVariables();
  std::error_code error;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", error).string();
  std::vector<Finding> findings;
  const auto add = [&](std::vector<Finding> more) {
    for (Finding& finding : more) {
      if (!json) {
        std::printf("%-4s  %s: %s\n", Word(finding.health), finding.name.c_str(), finding.text.c_str());
        if (!finding.advice.empty()) std::printf("      → %s\n", finding.advice.c_str());
        std::fflush(stdout);  // importing torch takes a while
      }
      findings.push_back(std::move(finding));
    }
  };
  add(CheckProgram(variables, self));
  add(CheckNetwork());
  add(CheckMachine());
  add(CheckFolders(variables));
  bool failed = false;
  nlohmann::ordered_json checks = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    failed |= finding.health == Health::kFail;
    checks.push_back({{"name", finding.name},
                      {"result", finding.health == Health::kFail ? "fail" : Word(finding.health)},
                      {"text", finding.text},
                      {"advice", finding.advice}});
  }
  if (json) {
    const nlohmann::ordered_json all = {{"ok", !failed}, {"version", CAIRN_VERSION}, {"checks", checks}};
    std::puts(all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
  }
  return failed ? 1 : 0;
}

}  // namespace

void AddDoctor(CLI::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("doctor", "Checks whether this machine is fit for a job, and says what to do");
  command->footer("Exit code 1 if anything FAILs; what is only a warning works, but less well.");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "one JSON object instead of lines");
  command->callback([json, &exit_code] { exit_code = Examine(*json); });
}

}  // namespace cairn::tool
