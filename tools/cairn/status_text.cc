#include "status_text.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <variant>
#include <vector>

#include "scheduler_call.h"

namespace cairn::tool {
namespace {

using Json = nlohmann::json;

// Columns as wide as their widest cell; numbers to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> head) { rows_.push_back(std::move(head)); }
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string Text() const {
    std::vector<size_t> widths(rows_.front().size());
    for (const auto& row : rows_) {
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string text = "\n";
    for (const auto& row : rows_) {
      std::string line;
      for (size_t i = 0; i < row.size(); ++i) {
        const std::string space(widths[i] - row[i].size(), ' ');
        const bool number = !row[i].empty() && row[i][0] >= '0' && row[i][0] <= '9' && i > 0;
        line += "  " + (number ? space + row[i] : row[i] + space);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    }
    return text;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

// The peer's JSON: whatever is missing or of another type is shown as "-".
std::string Text(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return "-";
  std::string text = found->is_string() ? found->get<std::string>() : found->dump();
  // Names are the users': none may move the cursor.
  for (char& c : text) c = static_cast<unsigned char>(c) < ' ' || c == 0x7f ? '?' : c;
  return text;
}
double Number(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}
bool Flag(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && found->get<bool>();
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
// A number that this scheduler may not know of.
std::string ShortOr(const Json& object, const char* key, const char* unit = "") {
  return object.contains(key) ? Short(Number(object, key), unit) : "-";
}
std::string Heard(const Json& node) {
  if (node.value("lost", false)) return "lost";
  const std::string seconds = Text(node, "seconds_since_heard");
  return seconds == "-" ? "not yet" : seconds + " s ago";
}

std::string ServersText(const Json& servers) {
  const bool owners = std::any_of(servers.begin(), servers.end(),
                                  [](const Json& server) { return server.contains("primaries"); });
  std::vector<std::string> head = {"server", "endpoint", "heard", "threads"};
  if (owners) {
    head.insert(head.end(), {"primary of", "backup of", "bytes", "unconfirmed"});
  } else {
    head.emplace_back("partitions");
  }
  head.insert(head.end(), {"rows", "memory", "rounds", "round trips", "pushes/s", "pulls/s", "bytes/s"});
  if (owners) head.emplace_back("");
  Table table(head);
  for (const Json& server : servers) {
    const Json& stats = Part(server, "stats");
    std::vector<std::string> row = {Text(server, "index"), Text(server, "endpoint"), Heard(server),
                                    Text(server, "threads")};
    if (owners) {
      row.insert(row.end(), {Text(server, "primaries"), Text(server, "backups"),
                             ShortOr(server, "bytes", "B"), ShortOr(server, "unconfirmed_bytes", "B")});
    } else {
      row.push_back(Text(server, "slots"));
    }
    row.insert(row.end(), {Short(Number(stats, "rows")), Short(Number(stats, "memory_bytes"), "B"),
                           Short(Number(stats, "rounds")), Short(Number(stats, "round_trips")),
                           Short(Number(server, "pushes_per_s")), Short(Number(server, "pulls_per_s")),
                           Short(Number(server, "bytes_per_s"), "B")});
    if (owners) row.emplace_back(Flag(server, "leaving") ? "leaving" : "");
    table.Add(row);
  }
  return table.Text();
}

// How many steps behind others were when this worker read: "0: 91 %, 1: 8 %, 2: 1 %".
std::string StalenessText(const Json& counts) {
  double all = 0;
  for (const Json& count : counts) all += count.is_number() ? count.get<double>() : 0;
  std::string text;
  for (size_t steps = 0; all > 0 && steps < counts.size(); ++steps) {
    const double share = 100 * (counts[steps].is_number() ? counts[steps].get<double>() : 0) / all;
    if (share < 0.5) continue;
    const bool more = steps + 1 == wire::kStalenessKinds;
    text += (text.empty() ? "" : ", ") + std::to_string(steps) + (more ? " or more" : "") + ": " +
            std::to_string(static_cast<int>(share + 0.5)) + " %";
  }
  return text;
}

// Numbers that no worker reports are not shown: a column of zeros would look like a worker that does
// nothing.
std::string WorkersText(const Json& workers) {
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
  for (const Column& column : columns) head.emplace_back(column.head);
  const bool bounded = std::any_of(workers.begin(), workers.end(),
                                   [](const Json& worker) { return worker.contains("staleness"); });
  if (bounded) head.emplace_back("others behind, in steps");
  Table table(head);
  for (const Json& worker : workers) {
    std::vector<std::string> row = {Text(worker, "rank"), Text(worker, "host"), Heard(worker),
                                    Text(worker, "join_view")};
    for (const Column& column : columns)
      row.push_back(Short(Number(Part(worker, "stats"), column.key), column.unit));
    if (bounded) row.push_back(StalenessText(Part(worker, "staleness")));
    table.Add(row);
  }
  return table.Text();
}

std::string TablesText(const Json& tables) {
  Table table({"table", "kind", "element", "mode", "optimizer", "size"});
  for (const Json& one : tables) {
    const bool sparse = Text(one, "kind") == "sparse";
    table.Add({Text(one, "name"), Text(one, "kind"), Text(one, "element"), Text(one, "mode"),
               Text(one, "optimizer"), sparse ? "rows of " + Text(one, "dim") : Text(one, "size")});
  }
  return table.Text();
}

std::string HotRowsText(const Json& tables) {
  Table table({"hottest rows of", "row", "share", "partition", "server"});
  bool any = false;
  for (const Json& one : tables) {
    if (!one.is_object()) continue;
    for (const Json& row : Part(one, "hot_rows")) {
      if (!row.is_object()) continue;
      char share[32];
      std::snprintf(share, sizeof share, "%.1f %%", 100 * Number(row, "share"));
      table.Add({Text(one, "name"), Text(row, "key"), share, Text(row, "slot"), Text(row, "server")});
      any = true;
    }
  }
  return any ? table.Text() : "";
}

// "work: server 2 thread 0 does 1.80 times the mean; 6 partitions have been moved for it"
std::string TrafficText(const Json& traffic) {
  constexpr double kWorthALine = 1.25;
  const double of_mean = Number(traffic, "hottest_of_mean"), moved = Number(traffic, "moved_for_it");
  if (of_mean <= kWorthALine && moved == 0) return "";
  char text[160];
  std::snprintf(text, sizeof text, "  work: server %.0f thread %.0f does %.2f times the mean",
                Number(traffic, "hottest_server"), Number(traffic, "hottest_thread"), of_mean);
  std::string line = text;
  if (moved > 0) line += "; partitions moved for that so far: " + Short(moved);
  return line + "\n";
}

// "copies: 2 of each partition; 240 of 256 have them all, 12 are being copied (4 have one copy only)"
std::string OwnersText(const Json& status) {
  const Json& slots = Part(status, "slots");
  if (!slots.contains("in_sync")) return "";
  std::string text = "  copies: " + Text(status, "replicas") + " of each partition; " +
                     Text(slots, "in_sync") + " of " + Text(slots, "total") + " have them all";
  if (Number(slots, "copying") > 0) text += ", " + Text(slots, "copying") + " are being copied";
  if (Number(slots, "handing_over") > 0)
    text += ", " + Text(slots, "handing_over") + " go over to another primary";
  if (Number(slots, "single") > 0 && Number(status, "replicas") > 1)
    text += ", " + Text(slots, "single") + " have ONE COPY ONLY";
  if (Number(status, "min_in_sync") > 1) text += "; acknowledged by " + Text(status, "min_in_sync");
  text += "\n  so far: " + Text(status, "failovers") + " failovers of partitions, " +
          Text(status, "moves_done") + " moves";
  double unconfirmed = 0, replicated = 0;
  for (const Json& server : Part(status, "servers")) {
    if (!server.is_object()) continue;
    unconfirmed += Number(server, "unconfirmed_bytes");
    replicated += Number(Part(server, "stats"), "replicated_bytes");
  }
  // They count from their own start, so this is no sum over the job.
  text += "; the current servers have sent " + Short(replicated, "B") + " to backups, " +
          Short(unconfirmed, "B") + " unconfirmed\n";
  return text;
}

// How far the copies under way are: "moves: 12 of 40 copies done"
std::string MovesText(const Json& moves) {
  if (Number(moves, "to_copy") == 0) return "";
  const double share = Number(moves, "copied") / Number(moves, "to_copy");
  char text[128];
  constexpr int kWidth = 30;
  const int filled = static_cast<int>(std::clamp(share, 0.0, 1.0) * kWidth);
  std::snprintf(text, sizeof text, "  moves: %.0f of %.0f copies done  [%s%s]\n", Number(moves, "copied"),
                Number(moves, "to_copy"), std::string(static_cast<size_t>(filled), '#').c_str(),
                std::string(static_cast<size_t>(kWidth - filled), '.').c_str());
  return text;
}

// "round 118 of "w" has waited 12 s for ranks 1, 2 and 38 more"
std::string StalledText(const Json& rounds) {
  std::string text;
  for (const Json& round : rounds) {
    if (!round.is_object()) continue;
    std::string ranks;
    const Json& named = Part(round, "missing_ranks");
    for (const Json& rank : named) ranks += (ranks.empty() ? "" : ", ") + rank.dump();
    if (const double more = Number(round, "missing") - static_cast<double>(named.size()); more > 0)
      ranks += " and " + Short(more) + " more";
    const bool one = named.size() == 1 && Number(round, "missing") <= 1;
    text += "  round " + Text(round, "round") + " of \"" + Text(round, "table") + "\" has waited " +
            std::to_string(static_cast<int64_t>(Number(round, "seconds"))) + " s" +
            (ranks.empty() ? "" : std::string(" for ") + (one ? "rank " : "ranks ") + ranks) + "\n";
  }
  return text;
}

}  // namespace

Result<std::string> AskStatus(const wire::Endpoint& scheduler, int64_t timeout_ms) {
  const Result<wire::ControlMessage> answer = AskScheduler(scheduler, wire::StatusRequest{1}, timeout_ms);
  if (!answer.ok()) return answer.status();
  if (const auto* refusal = std::get_if<wire::Refusal>(&*answer))
    return Result<std::string>(refusal->code, refusal->text);
  const auto* reply = std::get_if<wire::StatusReply>(&*answer);
  if (reply == nullptr)
    return Result<std::string>(Code::kProtocol, wire::ToString(scheduler) + " is no scheduler");
  if (!Json::parse(reply->json, nullptr, false).is_object())
    return Result<std::string>(Code::kProtocol, "the scheduler's answer can't be read");
  return reply->json;
}

std::string StatusText(const std::string& json) {
  const Json status = Json::parse(json, nullptr, false);
  if (!status.is_object()) return "the scheduler's answer can't be read\n";
  std::string text = "cluster " + Text(status, "cluster_id") + ": " + Text(status, "phase") + "\n";
  if (const std::string failure = Text(status, "failure"); !failure.empty() && failure != "-")
    text += "  failure: " + failure + "\n";
  const std::string partitions =
      Part(status, "slots").contains("total") ? Text(Part(status, "slots"), "total") : Text(status, "slots");
  const std::string wanted =
      status.contains("servers_wanted") ? Text(status, "servers_wanted") : Text(status, "expected_servers");
  size_t leaving = 0;
  for (const Json& server : Part(status, "servers"))
    leaving += server.is_object() && Flag(server, "leaving") ? 1 : 0;
  text += "  " + std::to_string(Part(status, "servers").size() - leaving) + " of " + wanted + " servers" +
          (leaving > 0 ? " (and " + std::to_string(leaving) + " leaving), " : ", ") +
          std::to_string(Part(status, "workers").size()) + " of " + Text(status, "expected_workers") +
          " workers, " + partitions + " partitions, view " + Text(status, "view") + ", state " +
          Text(status, "version") + " of term " + Text(status, "term") + "\n";
  text += OwnersText(status) + MovesText(Part(status, "moves")) + TrafficText(Part(status, "traffic"));
  if (const std::string awaiting = Text(status, "awaiting"); !awaiting.empty() && awaiting != "-")
    text += "  " + awaiting + "\n";
  text += StalledText(Part(status, "stalled_rounds"));
  const std::pair<const char*, const char*> ranks[] = {
      {"done_ranks", "done"}, {"given_up_ranks", "given up"}, {"missing_ranks", "missing"}};
  for (const auto& [key, word] : ranks) {
    if (!Part(status, key).empty())
      text += "  " + std::string(word) + ": ranks " + Part(status, key).dump() + "\n";
  }
  if (!Part(status, "servers").empty()) text += ServersText(Part(status, "servers"));
  if (!Part(status, "workers").empty()) text += WorkersText(Part(status, "workers"));
  if (!Part(status, "tables").empty()) text += TablesText(Part(status, "tables"));
  text += HotRowsText(Part(status, "tables"));
  return text;
}

}  // namespace cairn::tool
