#include "node_setup.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "cores.h"
#include "guard.h"
#include "progress.h"
#include "python_choice.h"

namespace cairn::tool {

using cluster::NodeName;
using wire::Role;

// A script is Python's, also where its first line names another one: that would be the system's.
Status NodeSetup::FindPrograms() {
  std::error_code error;
  self_ = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error) return {Code::kIo, "/proc/self/exe: " + error.message()};
  const bool module = !options_.module.empty();
  if (!module && !program_.front().ends_with(".py")) return Status::Ok();
  if (!module && access(program_.front().c_str(), R_OK) != 0)
    return {Code::kNotFound, program_.front() + ": " + strerror(errno)};
  const Result<PythonChoice> python = ChoosePython(variables_, self_);
  if (!python.ok()) return python.status();
  if (module) program_.insert(program_.begin(), {"-m", options_.module});
  program_.insert(program_.begin(), python->program);
  return Status::Ok();
}

void NodeSetup::SetFolder(const std::string& folder, const std::string& mark) {
  folder_ = folder;
  mark_ = mark;
}

std::string NodeSetup::DivideCores() {
  const auto given = variables_.find("OMP_NUM_THREADS");
  if (given != variables_.end() && !given->second.empty()) return "";
  const uint32_t cores = UsableCores(), workers = options_.supervise.workers;
  worker_threads_ = std::max(1u, cores / workers);
  return "OMP_NUM_THREADS=" + std::to_string(worker_threads_) +
         " for each worker: " + Counted(cores, "core") + " for " + Counted(workers, "worker") +
         " (set it to have another number)";
}

std::vector<std::string> NodeSetup::CommandOf(const NodeName& name, uint16_t last_port) const {
  switch (name.role) {
    case Role::kScheduler: return SchedulerCommand();
    case Role::kServer: return ServerCommand(name.index, last_port);
    default: return program_;
  }
}

std::vector<std::string> NodeSetup::SchedulerCommand() const {
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

std::vector<std::string> NodeSetup::ServerCommand(uint32_t index, uint16_t last_port) const {
  // On the port that its predecessor had, the scheduler knows at once that that one is gone.
  const bool free = last_port != 0 && CanListen(place_.server_host, last_port);
  std::vector<std::string> command = {
      self_, "server", "--port", std::to_string(free ? last_port : 0), "--rank", std::to_string(index)};
  if (!place_.server_host.empty()) command.insert(command.end(), {"--host", place_.server_host});
  if (options_.threads) command.insert(command.end(), {"--threads", std::to_string(*options_.threads)});
  return command;
}

std::vector<std::string> NodeSetup::EnvironmentFor(const NodeName& name,
                                                   const cluster::WorkerScale& workers) const {
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
  if (name.role == Role::kWorker) AddForWorker(name.index, workers, variables);
  std::vector<std::string> out;
  for (const auto& [key, value] : variables) out.push_back(key + "=" + value);
  return out;
}

void NodeSetup::AddForWorker(uint32_t rank, const cluster::WorkerScale& workers,
                             cluster::Variables& variables) const {
  const cluster::SuperviseOptions& share = options_.supervise;
  // An agent of torchrun's, if this is started below one, is not the workers'.
  std::erase_if(variables, [](const auto& variable) { return variable.first.starts_with("TORCHELASTIC_"); });
  variables["RANK"] = std::to_string(rank);
  // Those that `cairn scale` has added come after the others, on node 0.
  const uint32_t at_start = share.nodes * share.workers, first = share.node_rank * share.workers;
  const uint32_t local = rank < at_start ? rank - first : share.workers + rank - at_start;
  variables["LOCAL_RANK"] = std::to_string(local);
  variables["WORLD_SIZE"] = std::to_string(std::max(at_start, workers.wanted()));
  variables["LOCAL_WORLD_SIZE"] = std::to_string(workers.on_this_node());
  variables["MASTER_ADDR"] = place_.torch.host;
  variables["MASTER_PORT"] = std::to_string(place_.torch.port);
  variables.emplace("PYTHONUNBUFFERED", "1");  // its lines come when they are printed
  // Set to nothing counts as not set.
  if (worker_threads_ > 0) variables["OMP_NUM_THREADS"] = std::to_string(worker_threads_);
  if (worker_threads_ > 0) variables.emplace("MKL_NUM_THREADS", std::to_string(worker_threads_));
  // Nodes that are started by hand do not come within two minutes of each other.
  if (share.nodes > 1) variables.emplace("CAIRN_CONNECT_TIMEOUT_MS", std::to_string(share.join_grace_ms));
}

}  // namespace cairn::tool
