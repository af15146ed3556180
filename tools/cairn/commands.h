// The subcommands of `cairn`, a file each. Every Add… defines one on `app` and, if it is the one
// that was asked for, leaves its exit code in `exit_code`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cluster/environment.h"

namespace cairn::tool {

void AddScheduler(CLI::App& app, int& exit_code);
void AddServer(CLI::App& app, int& exit_code);
void AddRun(CLI::App& app, int& exit_code);
void AddStatus(CLI::App& app, int& exit_code);

// "cairn: message" on standard error, and the exit code 1.
int Complain(const std::string& message);
// A line for the user on standard error, in one write.
void LogLine(const std::string& line);

// The environment of a process that was started as `role`: an error where it says another role.
Result<cluster::Environment> EnvironmentOf(wire::Role role);

}  // namespace cairn::tool
