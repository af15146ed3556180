// cairn status: what the scheduler knows about the cluster, as a table or as JSON.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "commands.h"
#include "scheduler_call.h"

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
  Table table({"server", "endpoint", "heard", "threads", "partitions", "rows", "memory", "rounds", "pushes/s",
               "pulls/s", "bytes/s"});
  for (const Json& server : servers) {
    const Json& stats = Part(server, "stats");
    table.Add({Text(server, "index"), Text(server, "endpoint"), Heard(server), Text(server, "threads"),
               Text(server, "slots"), Short(Number(stats, "rows")), Short(Number(stats, "memory_bytes"), "B"),
               Short(Number(stats, "rounds")), Short(Number(server, "pushes_per_s")),
               Short(Number(server, "pulls_per_s")), Short(Number(server, "bytes_per_s"), "B")});
  }
  table.Print();
}

void PrintWorkers(const Json& workers) {
  Table table({"worker", "host", "heard", "view", "rounds", "pushes", "pulls", "sent", "received"});
  for (const Json& worker : workers) {
    const Json& stats = Part(worker, "stats");
    table.Add({Text(worker, "rank"), Text(worker, "host"), Heard(worker), Text(worker, "join_view"),
               Short(Number(stats, "rounds")), Short(Number(stats, "pushes")), Short(Number(stats, "pulls")),
               Short(Number(stats, "bytes_out"), "B"), Short(Number(stats, "bytes_in"), "B")});
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

Result<wire::Endpoint> SchedulerOf(const Flags& flags) {
  if (flags.scheduler) return cluster::ParseEndpoint("scheduler", *flags.scheduler);
  const Result<cluster::Environment> environment = cluster::ReadEnvironment(cluster::ProcessVariables());
  if (!environment.ok()) return environment.status();
  if (const Status status = cluster::RequireScheduler(*environment); !status.ok()) {
    return Result<wire::Endpoint>(status.code(), "which scheduler? For example: cairn status 127.0.0.1:9000");
  }
  return environment->scheduler();
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
      "  cairn status 10.0.0.1:9000\n"
      "  cairn status --json | jq .phase      (the scheduler comes from the environment)");
  auto flags = std::make_shared<Flags>();
  command->add_option("scheduler", flags->scheduler, "HOST:PORT of the scheduler");
  command->add_flag("--json", flags->json, "one JSON object instead of tables");
  command->add_option("--timeout-ms", flags->timeout_ms, "how long to wait for the answer (5000)")
      ->check(Within(1, 3'600'000));
  command->callback([flags, &exit_code] { exit_code = ShowStatus(*flags); });
}

}  // namespace cairn::tool
