#include "job_files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "job_wishes.h"

namespace cairn::tool {
namespace {

using Json = nlohmann::json;

// A folder that is this user's, and nobody else may write to.
Status MakeOwnFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return {Code::kIo, path + ": " + strerror(errno)};
  struct stat found{};
  if (lstat(path.c_str(), &found) != 0) return {Code::kIo, path + ": " + strerror(errno)};
  if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid() || (found.st_mode & 022) != 0) {
    return {Code::kIo, path + " is not a folder of this user alone: remove it, or set XDG_RUNTIME_DIR"};
  }
  return Status::Ok();
}

bool ReadEntry(const std::filesystem::path& path, JobEntry& out) {
  struct stat found{};
  constexpr off_t kMaxBytes = 64 * 1024;
  if (lstat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode) || found.st_size > kMaxBytes) return false;
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return false;
  const auto word = [&](const char* key) {
    const auto at = json.find(key);
    return at != json.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  const auto number = [&](const char* key) {
    const auto at = json.find(key);
    return at != json.end() && at->is_number_integer() ? at->get<int64_t>() : int64_t{0};
  };
  const Result<wire::Endpoint> address = cluster::ParseEndpoint("address", word("address"));
  if (!address.ok() || address->port == 0) return false;
  const auto launcher = json.find("launcher");
  out = {number("pid"),      *address,
         word("cluster_id"), number("started"),
         word("command"),    launcher != json.end() && launcher->is_boolean() && launcher->get<bool>(),
         path.string()};
  return true;
}

// A file that is being written has a dot in front; one that stays so was left by a crash.
bool IsStale(const std::filesystem::path& path) {
  if (IsHeld(path.string())) return false;
  constexpr time_t kWritingSeconds = 60;
  struct stat found{};
  return path.filename().string()[0] != '.' ||
         (stat(path.c_str(), &found) == 0 && found.st_mtime + kWritingSeconds < time(nullptr));
}

}  // namespace

Result<std::string> JobFolder(const cluster::Variables& variables) {
  const auto given = variables.find("XDG_RUNTIME_DIR");
  std::string base = given != variables.end() && given->second.starts_with("/") ? given->second : "";
  if (base.empty() || access(base.c_str(), W_OK | X_OK) != 0) {
    base = "/tmp/cairn-" + std::to_string(geteuid());
    if (Status status = MakeOwnFolder(base); !status.ok()) return status;
  }
  for (const char* level : {"/cairn", "/jobs"}) {
    base += level;
    if (Status status = MakeOwnFolder(base); !status.ok()) return status;
  }
  return base;
}

Status JobFile::Write(const cluster::Variables& variables, JobEntry entry) {
  const Result<std::string> folder = JobFolder(variables);
  if (!folder.ok()) return folder.status();
  // Containers that share the folder may share the process id.
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const std::string name = std::to_string(getpid()) + "-" + std::to_string(now.tv_sec) + "-" +
                           std::to_string(now.tv_nsec) + ".json";
  // Locked before it has its name: nobody takes it for one that was left behind.
  const std::string draft = *folder + "/." + name;
  std::optional<OwnerLock> lock = OwnerLock::Take(draft);
  if (!lock) return {Code::kIo, draft + ": " + strerror(errno)};
  const Json json = {{"pid", getpid()},
                     {"address", wire::ToString(entry.scheduler)},
                     {"cluster_id", entry.cluster_id},
                     {"started", static_cast<int64_t>(now.tv_sec)},
                     {"command", entry.command},
                     {"launcher", entry.launcher}};
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  const std::string path = *folder + "/" + name;
  if (write(lock->fd(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      rename(draft.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(draft.c_str());
    return {Code::kIo, path + ": " + strerror(error)};
  }
  lock_ = std::move(*lock);
  path_ = path;
  return Status::Ok();
}

JobFile::~JobFile() {
  if (path_.empty()) return;
  unlink(path_.c_str());
  RemoveWishes(path_);
}

// Newest first.
static std::vector<JobEntry> AllEntries(const cluster::Variables& variables) {
  std::vector<JobEntry> jobs;
  const Result<std::string> folder = JobFolder(variables);
  if (!folder.ok()) return jobs;
  std::error_code error;
  std::filesystem::directory_iterator at(*folder, error), end;
  constexpr size_t kMaxFiles = 4096;
  for (size_t seen = 0; !error && at != end && seen < kMaxFiles; at.increment(error), ++seen) {
    const std::filesystem::path path = at->path();
    if (path.extension() != ".json") continue;
    JobEntry entry;
    if (IsStale(path)) {
      unlink(path.c_str());
      RemoveWishes(path.string());
    } else if (path.filename().string()[0] != '.' && ReadEntry(path, entry)) {
      jobs.push_back(std::move(entry));
    }
  }
  std::sort(jobs.begin(), jobs.end(), [](const JobEntry& a, const JobEntry& b) {
    return a.started_unix != b.started_unix ? a.started_unix > b.started_unix : a.pid > b.pid;
  });
  return jobs;
}

std::vector<JobEntry> LaunchersOf(const cluster::Variables& variables, const std::string& cluster_id) {
  std::vector<JobEntry> jobs = AllEntries(variables);
  std::erase_if(jobs, [&](const JobEntry& job) { return !job.launcher || job.cluster_id != cluster_id; });
  return jobs;
}

std::vector<JobEntry> RunningJobs(const cluster::Variables& variables) {
  std::vector<JobEntry> unique;
  std::vector<JobEntry> jobs = AllEntries(variables);
  for (JobEntry& job : jobs) {
    const bool known = std::any_of(unique.begin(), unique.end(), [&](const JobEntry& other) {
      return other.scheduler == job.scheduler && other.cluster_id == job.cluster_id;
    });
    if (!known) unique.push_back(std::move(job));
  }
  return unique;
}

std::string OwnCommand() {
  std::ifstream file("/proc/self/cmdline");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  constexpr size_t kShown = 200;
  if (!text.empty() && text.back() == '\0') text.pop_back();
  for (char& c : text) c = static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  if (text.size() > kShown) text = text.substr(0, kShown) + "…";
  return text;
}

}  // namespace cairn::tool
