#include "work_folder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <utility>

namespace cairn::tool {
namespace {

namespace fs = std::filesystem;

constexpr char kFolderName[] = "cairn-run-";

Status CannotMake(const std::string& what) { return {Code::kIo, what + ": " + strerror(errno)}; }

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

WorkFolder::~WorkFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

Status WorkFolder::Make() {
  std::error_code error;
  const fs::path temporary = fs::temp_directory_path(error);
  if (error) return {Code::kIo, "no temporary folder: " + error.message() + "; set TMPDIR"};
  RemoveLeftFolders(temporary);
  std::string folder = (temporary / kFolderName).string() + "XXXXXX";
  if (mkdtemp(folder.data()) == nullptr)
    return CannotMake("no temporary folder for the scheduler (" + folder + ")");
  path_ = folder;
  std::optional<OwnerLock> lock = OwnerLock::Take(folder + "/lock");
  if (!lock) return CannotMake(folder + "/lock");
  lock_ = std::move(*lock);
  return Status::Ok();
}

}  // namespace cairn::tool
