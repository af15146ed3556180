// The launcher's preparations: what each process is told on its command line and in its
// environment, and where its output goes.
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "cores.h"
#include "launcher.h"
#include "progress.h"
#include "python_choice.h"

namespace cairn::tool {
namespace {

namespace fs = std::filesystem;
using cluster::NodeName;
using wire::Role;

constexpr char kFolderName[] = "cairn-run-";

Status Failed(const std::string& what) { return {Code::kIo, what + ": " + strerror(errno)}; }

// Folders of launchers that were killed together with their guards.
void RemoveLeftFolders(const fs::path& temporary) {
  std::error_code error;
  constexpr size_t kMaxEntries = 10'000;
  fs::directory_iterator at(temporary, error), end;
  for (size_t seen = 0; !error && at != end && seen < kMaxEntries; at.increment(error), ++seen) {
    const fs::path folder = at->path(), lock = folder / "lock";
    struct stat found{};
    if (!folder.filename().string().starts_with(kFolderName) || lstat(folder.c_str(), &found) != 0 ||
        !S_ISDIR(found.st_mode) || found.st_uid != geteuid())
      continue;
    std::error_code ignored;
    if (fs::exists(lock, ignored) && !IsHeld(lock.string())) fs::remove_all(folder, ignored);
  }
}

}  // namespace

Status Launcher::Prepare() {
  std::error_code error;
  self_ = fs::read_symlink("/proc/self/exe", error).string();
  if (error) return {Code::kIo, "/proc/self/exe: " + error.message()};
  colour_ = isatty(STDOUT_FILENO) == 1 && !variables_.contains("NO_COLOR");
  if (Status status = PrepareProgram(); !status.ok()) return status;
  Result<MeetingPlace> place = FindMeetingPlace(options_.nodes);
  if (!place.ok()) return place.status();
  place_ = std::move(place).value();
  if (Status status = PrepareFolder(); !status.ok()) return status;
  if (Status status = PrepareLogs(); !status.ok()) return status;
  if (Status status = PrepareSignals(); !status.ok()) return status;
  mark_ = RandomLetters(16);
  guard_.Start(self_, folder_, mark_);
  PrepareThreads();
  return Status::Ok();
}

// A script is Python's, also where its first line names another one: that would be the system's.
Status Launcher::PrepareProgram() {
  std::vector<std::string>& program = options_.program;
  const bool module = !options_.module.empty();
  if (!module && !program.front().ends_with(".py")) return Status::Ok();
  if (!module && access(program.front().c_str(), R_OK) != 0)
    return {Code::kNotFound, program.front() + ": " + strerror(errno)};
  const Result<PythonChoice> python = ChoosePython(variables_, self_);
  if (!python.ok()) return python.status();
  if (module) program.insert(program.begin(), {"-m", options_.module});
  program.insert(program.begin(), python->program);
  return Status::Ok();
}

Status Launcher::PrepareFolder() {
  std::error_code error;
  const fs::path temporary = fs::temp_directory_path(error);
  if (error) return {Code::kIo, "no temporary folder: " + error.message() + "; set TMPDIR"};
  RemoveLeftFolders(temporary);
  std::string folder = (temporary / kFolderName).string() + "XXXXXX";
  if (mkdtemp(folder.data()) == nullptr)
    return Failed("no temporary folder for the scheduler (" + folder + ")");
  folder_ = folder;
  std::optional<OwnerLock> lock = OwnerLock::Take(folder + "/lock");
  if (!lock) return Failed(folder + "/lock");
  folder_lock_ = std::move(*lock);
  return Status::Ok();
}

Status Launcher::PrepareLogs() {
  if (options_.no_logs) return Status::Ok();
  if (!options_.log_dir.empty()) {
    Result<LogFolder> given = LogFolder::At(options_.log_dir);
    if (!given.ok()) return {Code::kIo, "--log-dir " + given.status().message()};
    logs_ = std::move(given).value();
  } else {
    const std::string node =
        options_.nodes.nodes > 1 ? "-node" + std::to_string(options_.nodes.node_rank) : "";
    Result<LogFolder> made = LogFolder::New(variables_, RandomLetters(6) + node);
    if (!made.ok()) {
      Say("no logs are kept: " + made.status().message() + " (--log-dir FOLDER gives another place)");
      return Status::Ok();
    }
    logs_ = std::move(made).value();
  }
  own_log_.Open(logs_, "cairn");
  own_log_.Write("[cairn] " + OwnCommand());
  return Status::Ok();
}

Status Launcher::PrepareSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {
    struct sigaction before{};
    // Under nohup the terminal's end is not the job's.
    if (number == SIGHUP && sigaction(SIGHUP, nullptr, &before) == 0 && before.sa_handler == SIG_IGN)
      continue;
    sigaddset(&signals, number);
  }
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  return signal_fd_ >= 0 ? Status::Ok() : Failed("signalfd");
}

// Each worker would take all cores for itself.
void Launcher::PrepareThreads() {
  const auto given = variables_.find("OMP_NUM_THREADS");
  if (given != variables_.end() && !given->second.empty()) return;
  const uint32_t cores = UsableCores(), workers = options_.supervise.workers;
  worker_threads_ = std::max(1u, cores / workers);
  Say("OMP_NUM_THREADS=" + std::to_string(worker_threads_) + " for each worker: " + Counted(cores, "core") +
      " for " + Counted(workers, "worker") + " (set it to have another number)");
}

std::vector<std::string> Launcher::CommandOf(const NodeName& name) const {
  switch (name.role) {
    case Role::kScheduler: {
      std::vector<std::string> command = {self_,         "scheduler",
                                          "--host",      place_.listen_host,
                                          "--port",      std::to_string(place_.scheduler.port),
                                          "--state-dir", folder_ + "/state"};
      const auto add = [&command](const char* flag, const std::optional<uint32_t>& value) {
        if (value) command.insert(command.end(), {flag, std::to_string(*value)});
      };
      add("--replicas", options_.replicas);
      add("--min-in-sync", options_.min_in_sync);
      add("--slots", options_.slots);
      return command;
    }
    case Role::kServer: {
      // On the port that its predecessor had, the scheduler knows at once that that one is gone.
      const auto before = nodes_.find(name);
      const uint16_t port = before != nodes_.end() ? before->second.endpoint.port : 0;
      const bool free = port != 0 && CanListen(place_.server_host, port);
      std::vector<std::string> command = {
          self_, "server", "--port", std::to_string(free ? port : 0), "--rank", std::to_string(name.index)};
      if (!place_.server_host.empty()) command.insert(command.end(), {"--host", place_.server_host});
      if (options_.threads) command.insert(command.end(), {"--threads", std::to_string(*options_.threads)});
      return command;
    }
    default: return options_.program;
  }
}

std::vector<std::string> Launcher::EnvironmentFor(const NodeName& name) const {
  const cluster::SuperviseOptions& share = options_.supervise;
  cluster::Variables variables = variables_;
  cluster::RemoveRoleVariables(variables);
  variables["CAIRN_ROLE"] = name.role == Role::kScheduler ? "scheduler"
                            : name.role == Role::kServer  ? "server"
                                                          : "worker";
  variables["CAIRN_SCHED_HOST"] = place_.scheduler.host;
  variables["CAIRN_SCHED_PORT"] = std::to_string(place_.scheduler.port);
  variables["CAIRN_NUM_SERVERS"] = std::to_string(share.nodes * share.servers);
  variables["CAIRN_NUM_WORKERS"] = std::to_string(share.nodes * share.workers);
  variables["CAIRN_CLUSTER_ID"] = place_.cluster_id;
  std::string& mark = variables[kMarkVariable];
  mark += (mark.empty() ? "" : ":") + mark_;
  if (name.role != Role::kScheduler) variables["CAIRN_RANK"] = std::to_string(name.index);
  if (name.role == Role::kWorker) {
    // An agent of torchrun's, if this is started below one, is not the workers'.
    std::erase_if(variables,
                  [](const auto& variable) { return variable.first.starts_with("TORCHELASTIC_"); });
    variables["RANK"] = std::to_string(name.index);
    // Those that `cairn scale` has added come after the others, on node 0.
    const uint32_t at_start = share.nodes * share.workers, first = share.node_rank * share.workers;
    const uint32_t local = name.index < at_start ? name.index - first : share.workers + name.index - at_start;
    variables["LOCAL_RANK"] = std::to_string(local);
    variables["WORLD_SIZE"] = std::to_string(std::max(at_start, supervisor_.workers().wanted()));
    variables["LOCAL_WORLD_SIZE"] = std::to_string(supervisor_.workers().on_this_node());
    variables["MASTER_ADDR"] = place_.torch.host;
    variables["MASTER_PORT"] = std::to_string(place_.torch.port);
    variables.emplace("PYTHONUNBUFFERED", "1");  // its lines come when they are printed
    // Set to nothing counts as not set.
    if (worker_threads_ > 0) variables["OMP_NUM_THREADS"] = std::to_string(worker_threads_);
    if (worker_threads_ > 0) variables.emplace("MKL_NUM_THREADS", std::to_string(worker_threads_));
    // Nodes that are started by hand do not come within two minutes of each other.
    if (share.nodes > 1) variables.emplace("CAIRN_CONNECT_TIMEOUT_MS", std::to_string(share.join_grace_ms));
  }
  std::vector<std::string> out;
  for (const auto& [key, value] : variables) out.push_back(key + "=" + value);
  return out;
}

}  // namespace cairn::tool
