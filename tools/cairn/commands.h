// The subcommands of `cairn`, a file each. Every Add… defines one on `app` and, if it is the one
// that was asked for, leaves its exit code in `exit_code`.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <vector>

#include "cluster/environment/environment.h"

namespace cairn::tool {

void AddScheduler(CLI::App& app, int& exit_code);
void AddServer(CLI::App& app, int& exit_code);
// What comes after run's own options is `program`, which the caller has cut off (ProgramStart).
void AddRun(CLI::App& app, const std::vector<std::string>& program, int& exit_code);
void AddStatus(CLI::App& app, int& exit_code);
void AddTop(CLI::App& app, int& exit_code);
void AddScale(CLI::App& app, int& exit_code);
void AddStop(CLI::App& app, int& exit_code);
void AddDoctor(CLI::App& app, int& exit_code);

inline constexpr int kUsageError = 2;  // of every command

// Where the program of `cairn run` starts in `arguments`, which begin after the word "run": the first
// word that is no option and no option's value. A "--" before it is skipped. After "-m MODULE" come
// the module's arguments.
struct ProgramPlace {
  size_t options_end = 0;
  size_t program_begin = 0;
};
ProgramPlace ProgramStart(const CLI::App& run, const std::vector<std::string>& arguments);

// A range whose bounds the help does not spell out.
template <class T>
CLI::Validator Within(T low, T high) {
  return CLI::Range(low, high).description("");
}

// "cairn: message" on standard error, and the exit code 1.
int Complain(const std::string& message);
int ComplainOfUsage(const std::string& message);  // the same, with kUsageError
// A line for the user on standard error, in one write.
void PrintLine(const std::string& line);

// The environment of a process that was started as `role`: an error where it says another role.
Result<cluster::Environment> EnvironmentOf(wire::Role role);

}  // namespace cairn::tool
