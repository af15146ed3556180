// cairn doctor: this binary, and the Python that `cairn run train.py` would use.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "cairn/version.h"
#include "cluster/supervise/supervise_process.h"
#include "doctor.h"
#include "python_choice.h"
#include "status_poller.h"

namespace cairn::tool {
namespace {

using Json = nlohmann::json;

constexpr int64_t kImportMs = 120'000;  // torch from a cold disk takes its time

// For each module: its version, or how its import failed.
constexpr char kAskPython[] = R"(
import importlib, json, sys
found = {"python": "%d.%d.%d" % sys.version_info[:3]}
for name in ("cairn", "torch"):
    try:
        found[name] = {"version": str(getattr(importlib.import_module(name), "__version__", "?"))}
    except ModuleNotFoundError as error:
        found[name] = {"missing": error.name == name, "error": str(error)}
    except BaseException as error:
        found[name] = {"missing": False, "error": "%s: %s" % (type(error).__name__, error)}
print("\n" + json.dumps(found))
)";

// The output of a program, as far as it comes within the time.
Result<std::string> OutputOf(const cluster::ChildOptions& options, int64_t timeout_ms) {
  Result<cluster::Child> child = cluster::StartChild(options);
  if (!child.ok()) return child.status();
  std::string output;
  const int64_t deadline = MonotonicMs() + timeout_ms;
  bool ended = false;
  while (!ended && MonotonicMs() < deadline) {
    pollfd wait{child->output_fd, POLLIN, 0};
    if (poll(&wait, 1, static_cast<int>(deadline - MonotonicMs())) <= 0) continue;
    char piece[4096];
    const ssize_t got = read(child->output_fd, piece, sizeof piece);
    if (got > 0) output.append(piece, static_cast<size_t>(got));
    ended = got == 0;
  }
  kill(-child->pid, SIGKILL);
  waitpid(child->pid, nullptr, 0);
  close(child->output_fd);
  if (!ended)
    return Status(Code::kDeadlineExceeded, "no answer in " + std::to_string(timeout_ms / 1000) + " s");
  return output;
}

Finding CheckModule(const Json& found, const std::string& name, const std::string& program) {
  Finding finding{Health::kOk, name + " in Python", "", ""};
  const Json module = found.value(name, Json::object());
  if (module.contains("version")) {
    finding.text = module.value("version", "?");
    if (name == "cairn" && finding.text != CAIRN_VERSION && finding.text != "?") {
      finding.health = Health::kWarn;
      finding.text += ", and this binary is " CAIRN_VERSION;
      finding.advice = "install both from the same place: `which -a cairn` shows the binaries on PATH";
    }
    return finding;
  }
  const bool missing = module.value("missing", false);
  finding.health = missing ? Health::kWarn : Health::kFail;
  finding.text = missing ? "not installed" : "the import fails: " + module.value("error", "?");
  finding.advice = missing ? program + " -m pip install " +
                                 (name == "cairn" ? ". in the folder of Cairn's source" : name) +
                                 " (not needed for programs in C++)"
                           : "see the whole error with " + program + " -c 'import " + name + "'";
  return finding;
}

}  // namespace

std::vector<Finding> CheckProgram(const cluster::Variables& variables, const std::string& self) {
  std::vector<Finding> findings;
#ifdef NDEBUG
  const bool debug = false;
#else
  const bool debug = true;
#endif
  findings.push_back({Health::kOk, "cairn",
                      "version " CAIRN_VERSION " at " + self + " (compiler " __VERSION__ +
                          (debug ? ", with debug checks" : "") + ")",
                      ""});
  const Result<PythonChoice> python = ChoosePython(variables, self);
  if (!python.ok()) {
    findings.push_back(
        {Health::kWarn, "Python", python.status().message(), "not needed for programs in C++"});
    return findings;
  }
  cluster::ChildOptions child;
  child.command = {python->program, "-c", kAskPython};
  for (const auto& [key, value] : variables) child.environment.push_back(key + "=" + value);
  const Result<std::string> answer = OutputOf(child, kImportMs);
  const std::string text = answer.ok() ? *answer : "";
  const size_t begin = text.rfind("\n{");
  const Json found = Json::parse(begin == std::string::npos ? "" : text.substr(begin), nullptr, false);
  if (!found.is_object()) {
    findings.push_back({Health::kFail, "Python",
                        python->program + " (" + python->why + ") does not work: " +
                            (answer.ok() ? text.substr(0, 500) : answer.status().message()),
                        "set CAIRN_PYTHON to another one"});
    return findings;
  }
  findings.push_back({Health::kOk, "Python",
                      found.value("python", "?") + " at " + python->program + " (" + python->why + ")", ""});
  for (const char* name : {"cairn", "torch"}) findings.push_back(CheckModule(found, name, python->program));
  return findings;
}

}  // namespace cairn::tool
