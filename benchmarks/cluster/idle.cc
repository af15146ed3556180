// Figures::Idle: the CPU time of every process of this job, launcher included, while its workers do
// nothing. Each worker has used every connection before, so that all threads are there.
#include <dirent.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "figures.h"
#include "measure.h"

namespace bench {
namespace {

// Seconds of CPU of another process; negative if it has gone.
double CpuSeconds(pid_t pid) {
  clockid_t clock;
  timespec time{};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) return -1;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// The field after the command in /proc/PID/stat's order: state, then the parent.
pid_t ParentOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t end = line.rfind(')');
  if (end == std::string::npos || end + 4 >= line.size()) return 0;
  return static_cast<pid_t>(std::atoi(line.c_str() + end + 4));
}

// "server" of `cairn server --port …`, "run" of the launcher, the program's own name of a worker.
std::string NameOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
  std::string program, word;
  std::getline(file, program, '\0');
  std::getline(file, word, '\0');
  program = program.substr(program.rfind('/') + 1);
  return program == "cairn" ? program + " " + word : program;
}

// This job: the launcher, which is this process's parent, and its children.
std::map<pid_t, double> CpuOfJob() {
  std::map<pid_t, double> cpu;
  const pid_t launcher = getppid();
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return cpu;
  while (const dirent* entry = readdir(folder)) {
    const auto pid = static_cast<pid_t>(std::atoi(entry->d_name));
    if (pid > 0 && (pid == launcher || ParentOf(pid) == launcher)) cpu[pid] = CpuSeconds(pid);
  }
  closedir(folder);
  return cpu;
}

}  // namespace

void Figures::Idle() {
  cairn::TableSpec spec{.name = "idle", .optimizer = cairn::OptimizerKind::kSgd, .size = 1 << 20};
  auto table = client_.CreateDense(spec);
  Check(table.status());
  const std::vector<float> gradient(spec.size, 1e-3f);
  for (int i = 0; i < 20; ++i) Check(table->Push(std::span(gradient)).Wait());
  Check(client_.Barrier());
  const std::chrono::duration<double> settle(1.0), time(flags_.idle_seconds);
  std::this_thread::sleep_for(settle);
  const auto before = CpuOfJob();
  std::this_thread::sleep_for(time);
  const auto after = CpuOfJob();
  double seconds = 0;
  for (const auto& [pid, cpu] : after) {
    if (!before.contains(pid)) continue;
    const double used = cpu - before.at(pid);
    seconds += used;
    std::printf("  %-42s %.2f ms a second\n", NameOf(pid).c_str(), used * 1000 / flags_.idle_seconds);
  }
  Figure figure{.id = "idle", .work = "CPU of the idle job, all processes", .unit = "ms/s"};
  figure.value = figure.least = figure.most = seconds * 1000 / flags_.idle_seconds;
  figure.median_us = seconds * 1e6;
  figure.runs = after.size();
  std::printf("%-44s %.2f ms a second (%zu processes, %.0f s)\n", figure.work.c_str(), figure.value,
              after.size(), flags_.idle_seconds);
  std::fflush(stdout);
  all_.push_back(std::move(figure));
  Check(client_.Barrier());
}

}  // namespace bench
