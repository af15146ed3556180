// The launcher's preparations: what each process is told on its command line and in its
// environment.
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "launcher.h"

namespace cairn::tool {
namespace {

using cluster::NodeName;
using wire::Role;

Status Failed(const std::string& what) { return {Code::kIo, what + ": " + strerror(errno)}; }

// For torch.distributed, which wants to be told a port: one that is free now.
std::string FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    address.sin_port = htons(29500);  // torchrun's
  }
  if (fd >= 0) close(fd);
  return std::to_string(ntohs(address.sin_port));
}

std::string RandomName() {
  std::random_device random;
  static constexpr char kLetters[] = "0123456789abcdefghijkmnpqrstuvwxyz";
  std::string name = "run-";
  for (int i = 0; i < 12; ++i) name.push_back(kLetters[random() % (sizeof kLetters - 1)]);
  return name;
}

}  // namespace

Status Launcher::Prepare() {
  std::error_code error;
  self_ = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error) return {Code::kIo, "/proc/self/exe: " + error.message()};
  if (!options_.log_dir.empty() && !std::filesystem::create_directories(options_.log_dir, error) && error) {
    return {Code::kIo, "--log-dir " + options_.log_dir + ": " + error.message()};
  }
  std::string folder = (std::filesystem::temp_directory_path(error) / "cairn-run-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr)
    return Failed("no temporary folder for the scheduler (" + folder + ")");
  state_dir_ = folder;
  cluster_id_ = RandomName();
  master_port_ = FreePort();
  colour_ = isatty(STDOUT_FILENO) == 1 && !variables_.contains("NO_COLOR");

  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  return signal_fd_ >= 0 ? Status::Ok() : Failed("signalfd");
}

std::vector<std::string> Launcher::CommandOf(const NodeName& name) const {
  switch (name.role) {
    case Role::kScheduler:
      return {self_,         "scheduler", "--host", "127.0.0.1", "--port", std::to_string(scheduler_port_),
              "--state-dir", state_dir_};
    case Role::kServer: {
      std::vector<std::string> command = {self_,    "server", "--host", "127.0.0.1",
                                          "--port", "0",      "--rank", std::to_string(name.index)};
      if (options_.threads) command.insert(command.end(), {"--threads", std::to_string(*options_.threads)});
      return command;
    }
    default: break;
  }
  std::vector<std::string> command = options_.program;
  // `cairn run train.py` works whether the script is executable or not.
  if (command.front().ends_with(".py") && access(command.front().c_str(), X_OK) != 0) {
    command.insert(command.begin(), "python3");
  }
  return command;
}

std::vector<std::string> Launcher::EnvironmentFor(const NodeName& name) const {
  cluster::Variables variables = variables_;
  cluster::RemoveRoleVariables(variables);
  variables["CAIRN_ROLE"] = name.role == Role::kScheduler ? "scheduler"
                            : name.role == Role::kServer  ? "server"
                                                          : "worker";
  variables["CAIRN_SCHED_HOST"] = "127.0.0.1";
  variables["CAIRN_SCHED_PORT"] = std::to_string(scheduler_port_);
  variables["CAIRN_NUM_SERVERS"] = std::to_string(options_.supervise.servers);
  variables["CAIRN_NUM_WORKERS"] = std::to_string(options_.supervise.workers);
  variables["CAIRN_CLUSTER_ID"] = cluster_id_;
  if (name.role != Role::kScheduler) variables["CAIRN_RANK"] = std::to_string(name.index);
  if (name.role == Role::kWorker) {
    variables["RANK"] = variables["LOCAL_RANK"] = std::to_string(name.index);
    variables["WORLD_SIZE"] = std::to_string(options_.supervise.workers);
    variables["MASTER_ADDR"] = "127.0.0.1";
    variables["MASTER_PORT"] = master_port_;
    variables.emplace("PYTHONUNBUFFERED", "1");  // its lines come when they are printed
  }
  std::vector<std::string> out;
  for (const auto& [key, value] : variables) out.push_back(key + "=" + value);
  return out;
}

}  // namespace cairn::tool
