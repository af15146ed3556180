// cairn status: what the scheduler knows about the cluster, as a table or as JSON. Without an address
// it finds the job that runs here (job_files.h).
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "commands.h"
#include "job_files.h"
#include "progress.h"
#include "scheduler_call.h"
#include "status_poller.h"

namespace cairn::tool {
namespace {

using Json = nlohmann::json;

struct Flags {
  std::optional<std::string> scheduler;
  bool json = false;
  int64_t timeout_ms = 5'000;
};

// Columns as wide as their widest cell; numbers to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> head) { rows_.push_back(std::move(head)); }
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  void Print() const {
    std::vector<size_t> widths(rows_.front().size());
    for (const auto& row : rows_) {
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    for (const auto& row : rows_) {
      std::string line;
      for (size_t i = 0; i < row.size(); ++i) {
        const std::string space(widths[i] - row[i].size(), ' ');
        const bool number = !row[i].empty() && row[i][0] >= '0' && row[i][0] <= '9' && i > 0;
        line += "  " + (number ? space + row[i] : row[i] + space);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      std::puts(line.c_str());
    }
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

// The peer's JSON: whatever is missing or of another type is shown as "-".
std::string Text(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return "-";
  return found->is_string() ? found->get<std::string>() : found->dump();
}
double Number(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}
const Json& Part(const Json& object, const char* key) {
  static const Json kNothing = Json::object();
  const auto found = object.find(key);
  return found != object.end() && found->is_structured() ? *found : kNothing;
}
std::string Short(double value, const char* unit = "") {
  static constexpr const char* kScales[] = {"", " k", " M", " G", " T"};
  size_t scale = 0;
  while (value >= 1000 && scale + 1 < std::size(kScales)) value /= 1000, ++scale;
  char text[64];
  const bool whole = scale == 0 && value == static_cast<double>(static_cast<int64_t>(value));
  std::snprintf(text, sizeof text, whole ? "%.0f%s%s" : "%.1f%s%s", value, kScales[scale],
                scale == 0 && *unit != 0 ? (std::string(" ") + unit).c_str() : unit);
  return text;
}
std::string Heard(const Json& node) {
  if (node.value("lost", false)) return "lost";
  const std::string seconds = Text(node, "seconds_since_heard");
  return seconds == "-" ? "not yet" : seconds + " s ago";
}

void PrintServers(const Json& servers) {
  Table table({"server", "endpoint", "heard", "threads", "partitions", "rows", "memory", "rounds", "round trips",
               "pushes/s", "pulls/s", "bytes/s"});
  for (const Json& server : servers) {
    const Json& stats = Part(server, "stats");
    table.Add({Text(server, "index"), Text(server, "endpoint"), Heard(server), Text(server, "threads"),
               Text(server, "slots"), Short(Number(stats, "rows")), Short(Number(stats, "memory_bytes"), "B"),
               Short(Number(stats, "rounds")), Short(Number(stats, "round_trips")),
               Short(Number(server, "pushes_per_s")),
               Short(Number(server, "pulls_per_s")), Short(Number(server, "bytes_per_s"), "B")});
  }
  table.Print();
}

// Numbers that no worker reports are not shown: a column of zeros would look like a worker that does
// nothing.
void PrintWorkers(const Json& workers) {
  struct Column {
    const char *head, *key, *unit;
  };
  std::vector<Column> columns = {{"rounds", "rounds", ""},
                                 {"pushes", "pushes", ""},
                                 {"pulls", "pulls", ""},
                                 {"sent", "bytes_out", "B"},
                                 {"received", "bytes_in", "B"}};
  std::erase_if(columns, [&](const Column& column) {
    return std::all_of(workers.begin(), workers.end(),
                       [&](const Json& worker) { return Number(Part(worker, "stats"), column.key) == 0; });
  });
  std::vector<std::string> head = {"worker", "host", "heard", "view"};
  for (const Column& column : columns) head.push_back(column.head);
  Table table(head);
  for (const Json& worker : workers) {
    std::vector<std::string> row = {Text(worker, "rank"), Text(worker, "host"), Heard(worker),
                                    Text(worker, "join_view")};
    for (const Column& column : columns)
      row.push_back(Short(Number(Part(worker, "stats"), column.key), column.unit));
    table.Add(row);
  }
  table.Print();
}

void PrintTables(const Json& tables) {
  Table table({"table", "kind", "element", "mode", "optimizer", "size"});
  for (const Json& one : tables) {
    const bool sparse = Text(one, "kind") == "sparse";
    table.Add({Text(one, "name"), Text(one, "kind"), Text(one, "element"), Text(one, "mode"),
               Text(one, "optimizer"), sparse ? "rows of " + Text(one, "dim") : Text(one, "size")});
  }
  table.Print();
}

void Print(const Json& status) {
  std::printf("cluster %s: %s\n", Text(status, "cluster_id").c_str(), Text(status, "phase").c_str());
  if (const std::string failure = Text(status, "failure"); !failure.empty() && failure != "-") {
    std::printf("  failure: %s\n", failure.c_str());
  }
  std::printf("  %zu of %s servers, %zu of %s workers, %s partitions, view %s, state %s of term %s\n",
              Part(status, "servers").size(), Text(status, "expected_servers").c_str(),
              Part(status, "workers").size(), Text(status, "expected_workers").c_str(),
              Text(status, "slots").c_str(), Text(status, "view").c_str(), Text(status, "version").c_str(),
              Text(status, "term").c_str());
  if (const std::string awaiting = Text(status, "awaiting"); !awaiting.empty() && awaiting != "-") {
    std::printf("  %s\n", awaiting.c_str());
  }
  const std::pair<const char*, const char*> ranks[] = {
      {"done_ranks", "done"}, {"given_up_ranks", "given up"}, {"missing_ranks", "missing"}};
  for (const auto& [key, word] : ranks) {
    if (!Part(status, key).empty()) std::printf("  %s: ranks %s\n", word, Part(status, key).dump().c_str());
  }
  if (!Part(status, "servers").empty()) std::puts(""), PrintServers(Part(status, "servers"));
  if (!Part(status, "workers").empty()) std::puts(""), PrintWorkers(Part(status, "workers"));
  if (!Part(status, "tables").empty()) std::puts(""), PrintTables(Part(status, "tables"));
}

// A scheduler that was started without a name has made one up.
std::string IdOf(const JobEntry& job) {
  constexpr int64_t kTimeoutMs = 500;
  if (!job.cluster_id.empty()) return job.cluster_id;
  const Result<ClusterSummary> summary = AskSummary(job.scheduler, kTimeoutMs);
  return summary.ok() ? summary->cluster_id : "-";
}

std::string ListOf(const std::vector<JobEntry>& jobs) {
  std::string text;
  for (const JobEntry& job : jobs) {
    const int64_t age_s = std::max<int64_t>(0, time(nullptr) - job.started_unix);
    text += "\n  " + wire::ToString(job.scheduler) + "  " + IdOf(job) + "  since " + ClockTime(age_s * 1000) +
            "  pid " + std::to_string(job.pid) + "  " + job.command;
  }
  return text;
}

Result<wire::Endpoint> OnlyOne(const std::vector<JobEntry>& jobs, const std::string& prefix) {
  if (jobs.size() == 1) return jobs.front().scheduler;
  if (!jobs.empty()) {
    return Status(
        Code::kInvalidArgument,
        std::to_string(jobs.size()) + " jobs" +
            (prefix.empty() ? " run here" : " begin with '" + prefix + "'") +
            "; which one? Give its address or the beginning of its name (newest first):" + ListOf(jobs));
  }
  if (!prefix.empty())
    return Status(Code::kNotFound, "no job that runs here begins with '" + prefix +
                                       "', and it is no HOST:PORT: `cairn status` alone shows what runs");
  return Status(Code::kNotFound,
                "no job runs here. Start one with `cairn run`, or give the address of a scheduler elsewhere: "
                "cairn status 10.0.0.1:9000");
}

// The address or the name that was given; what the environment says; the job that runs here.
Result<wire::Endpoint> SchedulerOf(const Flags& flags) {
  const cluster::Variables variables = cluster::ProcessVariables();
  if (flags.scheduler) {
    Result<wire::Endpoint> address = cluster::ParseEndpoint("scheduler", *flags.scheduler);
    if (address.ok()) return address;
    std::vector<JobEntry> jobs = RunningJobs(variables);
    std::erase_if(jobs, [&](const JobEntry& job) { return !IdOf(job).starts_with(*flags.scheduler); });
    // What has a colon was meant as an address, unless a job is called so.
    if (jobs.empty() && flags.scheduler->find(':') != std::string::npos) return address;
    return OnlyOne(jobs, *flags.scheduler);
  }
  const Result<cluster::Environment> environment = cluster::ReadEnvironment(variables);
  if (!environment.ok()) return environment.status();
  if (cluster::RequireScheduler(*environment).ok()) return environment->scheduler();
  return OnlyOne(RunningJobs(variables), "");
}

int ShowStatus(const Flags& flags) {
  const Result<wire::Endpoint> scheduler = SchedulerOf(flags);
  if (!scheduler.ok()) return Complain("status: " + scheduler.status().message());
  const Result<wire::ControlMessage> answer =
      AskScheduler(*scheduler, wire::StatusRequest{1}, flags.timeout_ms);
  if (!answer.ok()) return Complain("status: " + answer.status().message());
  if (const auto* refusal = std::get_if<wire::Refusal>(&*answer)) return Complain("status: " + refusal->text);
  const auto* reply = std::get_if<wire::StatusReply>(&*answer);
  if (reply == nullptr) return Complain("status: " + wire::ToString(*scheduler) + " is no scheduler");
  const Json status = Json::parse(reply->json, nullptr, false);
  if (!status.is_object()) return Complain("status: the scheduler's answer can't be read");
  if (flags.json) {
    std::puts(reply->json.c_str());
  } else {
    Print(status);
  }
  return 0;
}

}  // namespace

void AddStatus(CLI::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("status", "Shows nodes, partitions, tables, rounds and rates of a cluster");
  command->footer(
      "Without an address: the scheduler that the environment names (CAIRN_SCHED_PORT and the like), or\n"
      "else the job that runs here.\n"
      "  cairn status\n"
      "  cairn status 10.0.0.1:9000\n"
      "  cairn status --json | jq .phase");
  auto flags = std::make_shared<Flags>();
  command->add_option("scheduler", flags->scheduler,
                      "HOST:PORT of the scheduler, or the beginning of a job's name");
  command->add_flag("--json", flags->json, "one JSON object instead of tables");
  command->add_option("--timeout-ms", flags->timeout_ms, "how long to wait for the answer (5000)")
      ->check(Within(1, 3'600'000));
  command->callback([flags, &exit_code] { exit_code = ShowStatus(*flags); });
}

}  // namespace cairn::tool
