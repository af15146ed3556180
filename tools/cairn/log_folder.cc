#include "log_folder.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <ctime>
#include <filesystem>
#include <utility>
#include <vector>

namespace cairn::tool {
namespace {

namespace fs = std::filesystem;

constexpr char kLockName[] = "/.lock";

// "20250131-235959-a1b2c3": what we made, and nothing else, is ours to remove.
bool IsRunName(const std::string& name) {
  if (name.size() < 17 || name[8] != '-' || name[15] != '-') return false;
  for (size_t i = 0; i < 15; ++i) {
    if (i != 8 && !std::isdigit(static_cast<unsigned char>(name[i]))) return false;
  }
  return true;
}

void RemoveOld(const std::string& runs) {
  std::error_code error;
  std::vector<std::string> names;
  constexpr size_t kMaxEntries = 10'000;
  fs::directory_iterator at(runs, error), end;
  for (size_t seen = 0; !error && at != end && seen < kMaxEntries; at.increment(error), ++seen) {
    std::error_code ignored;
    if (at->is_directory(ignored) && !at->is_symlink(ignored) && IsRunName(at->path().filename().string()))
      names.push_back(at->path().filename().string());
  }
  std::sort(names.rbegin(), names.rend());
  for (size_t i = LogFolder::kKept; i < names.size(); ++i) {
    const std::string folder = runs + "/" + names[i];
    std::error_code ignored;
    if (!fs::exists(folder + kLockName, ignored) || !IsHeld(folder + kLockName))
      fs::remove_all(folder, ignored);
  }
}

Status MakeWritable(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return {Code::kIo, path + ": " + error.message()};
  if (access(path.c_str(), W_OK | X_OK) != 0) return {Code::kIo, path + ": " + strerror(errno)};
  return Status::Ok();
}

}  // namespace

std::string StateHome(const cluster::Variables& variables) {
  const auto value = [&](const char* name) {
    const auto found = variables.find(name);
    return found != variables.end() && found->second.starts_with("/") ? found->second : std::string();
  };
  if (const std::string state = value("XDG_STATE_HOME"); !state.empty()) return state + "/cairn";
  if (const std::string home = value("HOME"); !home.empty()) return home + "/.local/state/cairn";
  return "";
}

Result<LogFolder> LogFolder::At(const std::string& path) {
  if (Status status = MakeWritable(path); !status.ok()) return status;
  LogFolder folder;
  std::error_code error;
  folder.path_ = fs::absolute(path, error).lexically_normal().string();
  if (error) folder.path_ = path;
  return folder;
}

Result<LogFolder> LogFolder::New(const cluster::Variables& variables, const std::string& id) {
  const std::string home = StateHome(variables);
  if (home.empty()) return Status(Code::kNotFound, "neither XDG_STATE_HOME nor HOME is set");
  const time_t now = time(nullptr);
  tm local{};
  localtime_r(&now, &local);
  char stamp[32];
  strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local);
  LogFolder folder;
  folder.path_ = home + "/runs/" + stamp + "-" + id;
  folder.max_file_bytes_ = kMaxDefaultFileBytes;
  if (Status status = MakeWritable(folder.path_); !status.ok()) return status;
  std::optional<OwnerLock> lock = OwnerLock::Take(folder.path_ + kLockName);
  if (!lock) return Status(Code::kIo, folder.path_ + kLockName + ": " + strerror(errno));
  folder.lock_ = std::move(*lock);
  RemoveOld(home + "/runs");
  return folder;
}

void LogFile::Open(const LogFolder& folder, const std::string& name) {
  if (folder.path().empty()) return;
  failed_ = !file_.Open(folder.path() + "/" + name + ".log", folder.max_file_bytes());
}

Status LogFile::TakeError() {
  if (!std::exchange(failed_, false)) return Status::Ok();
  return {Code::kIo, file_.path() + " can't be written: going on without it"};
}

}  // namespace cairn::tool
