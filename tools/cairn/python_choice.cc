#include "python_choice.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace cairn::tool {
namespace {

namespace fs = std::filesystem;

bool IsProgram(const std::string& path) {
  struct stat found{};
  return stat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode) && access(path.c_str(), X_OK) == 0;
}

const std::string* Value(const cluster::Variables& variables, const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() || found->second.empty() ? nullptr : &found->second;
}

std::string PythonIn(const fs::path& folder) {
  for (const char* name : {"python", "python3"}) {
    if (IsProgram((folder / name).string())) return (folder / name).string();
  }
  return "";
}

// Beside the binary, or in the virtual environment that has it somewhere below (a package's own
// folder in site-packages).
std::string Beside(const fs::path& binary) {
  if (binary.empty()) return "";
  if (std::string found = PythonIn(binary.parent_path()); !found.empty()) return found;
  constexpr int kMaxLevels = 8;
  fs::path folder = binary.parent_path();
  for (int i = 0; i < kMaxLevels && folder.has_relative_path(); ++i, folder = folder.parent_path()) {
    std::error_code ignored;
    if (fs::exists(folder / "pyvenv.cfg", ignored)) return PythonIn(folder / "bin");
  }
  return "";
}

}  // namespace

std::string OnPath(const cluster::Variables& variables, const std::string& name) {
  if (name.find('/') != std::string::npos) return IsProgram(name) ? name : "";
  const std::string* path = Value(variables, "PATH");
  std::string folders = path != nullptr ? *path : "/usr/local/bin:/usr/bin:/bin";
  for (size_t at = 0; at <= folders.size();) {
    const size_t colon = std::min(folders.find(':', at), folders.size());
    const std::string folder = folders.substr(at, colon - at);
    std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (IsProgram(candidate)) return candidate;
    at = colon + 1;
  }
  return "";
}

Result<PythonChoice> ChoosePython(const cluster::Variables& variables, const std::string& self) {
  if (const std::string* given = Value(variables, "CAIRN_PYTHON")) {
    const std::string found = OnPath(variables, *given);
    if (!found.empty()) return PythonChoice{found, "$CAIRN_PYTHON"};
    return Result<PythonChoice>(
        Code::kInvalidArgument,
        "CAIRN_PYTHON=" + *given + " is no program that can be run: correct or unset it");
  }
  if (const std::string* environment = Value(variables, "VIRTUAL_ENV")) {
    const std::string found = PythonIn(fs::path(*environment) / "bin");
    if (!found.empty()) return PythonChoice{found, "$VIRTUAL_ENV"};
  }
  // As it was called first: in a virtual environment `cairn` may be a link to elsewhere.
  const std::string called = OnPath(variables, program_invocation_name);
  for (const std::string& binary : {called, self}) {
    std::error_code ignored;
    const fs::path absolute = binary.empty() ? fs::path() : fs::absolute(binary, ignored);
    if (const std::string found = Beside(absolute); !found.empty())
      return PythonChoice{found, "beside cairn"};
  }
  for (const char* name : {"python3", "python"}) {
    const std::string found = OnPath(variables, name);
    if (!found.empty()) return PythonChoice{found, "on PATH"};
  }
  return Result<PythonChoice>(
      Code::kNotFound,
      "no Python is found: activate a virtual environment, or set CAIRN_PYTHON=/path/to/python");
}

}  // namespace cairn::tool
