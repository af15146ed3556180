#include "cluster/environment/environment.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <vector>

#include "cairn/client.h"

namespace cairn::cluster {
namespace {

constexpr uint32_t kMaxNodes = 65'535;
constexpr uint32_t kMaxSlots = 65'536;
constexpr uint32_t kMaxServerThreads = 1'024;
constexpr int64_t kMaxTimeoutMs = int64_t{30} * 24 * 3600 * 1000;

std::string Quoted(std::string_view variable, std::string_view text) {
  constexpr size_t kShown = 120;
  std::string out(variable);
  out.append("=").append(text.substr(0, kShown));
  if (text.size() > kShown) out.append("…");
  return out;
}

Status Malformed(std::string_view variable, std::string_view text, std::string_view expected) {
  return {Code::kInvalidArgument, Quoted(variable, text) + " is not " + std::string(expected)};
}

template <class T>
Result<T> ParseNumber(std::string_view variable, std::string_view text, T low, T high) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    return Malformed(variable, text, "a number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return value;
}

bool IsHost(std::string_view text) {
  constexpr size_t kMaxHostBytes = 253;
  return !text.empty() && text.size() <= kMaxHostBytes && std::all_of(text.begin(), text.end(), [](char c) {
    return c > ' ' && c < 0x7f && std::string_view("/,[]").find(c) == std::string_view::npos;
  });
}

// Gathers the fields, remembering which variable gave each, and keeps the first error.
class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  const Status& status() const { return status_; }

  const std::string* Text(const char* variable) const {
    const auto found = variables_.find(variable);
    return found == variables_.end() || found->second.empty() ? nullptr : &found->second;
  }

  // Puts a value into `field`, or reports that another variable has said otherwise.
  template <class T>
  void Set(std::optional<T>& field, const char* variable, const std::string& text, T value) {
    if (!status_.ok()) return;
    const auto [origin, first] = origins_.try_emplace(&field, Origin{variable, text});
    if (first) {
      field = std::move(value);
    } else if (*field != value) {
      status_ = Status(Code::kInvalidArgument, Quoted(origin->second.variable, origin->second.text) +
                                                   " and " + Quoted(variable, text) +
                                                   " contradict each other: unset one of them");
    }
  }

  template <class T>
  void Number(std::optional<T>& field, const char* variable, T low, T high) {
    const std::string* text = Text(variable);
    if (text == nullptr) return;
    Take(field, variable, *text, ParseNumber<T>(variable, *text, low, high));
  }
  void Port(std::optional<uint16_t>& field, const char* variable) {
    Number<uint16_t>(field, variable, 0, std::numeric_limits<uint16_t>::max());
  }
  void Timeout(std::optional<int64_t>& field, const char* variable) {
    Number<int64_t>(field, variable, 1, kMaxTimeoutMs);
  }
  void Host(std::optional<std::string>& field, const char* variable) {
    const std::string* text = Text(variable);
    if (text == nullptr) return;
    if (IsHost(*text)) return Set(field, variable, *text, *text);
    Fail(Malformed(variable, *text, "a host name or an address"));
  }
  void Name(std::optional<std::string>& field, const char* variable) {
    const std::string* text = Text(variable);
    if (text != nullptr) Set(field, variable, *text, *text);
  }
  // `names` are the scheduler's, the server's and the worker's; an empty one does not exist.
  void Role(std::optional<wire::Role>& field, const char* variable, const std::vector<std::string>& names) {
    const std::string* text = Text(variable);
    if (text == nullptr) return;
    std::string expected;
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i].empty()) continue;
      if (*text == names[i]) return Set(field, variable, *text, static_cast<wire::Role>(i));
      expected += (expected.empty() ? "one of " : ", ") + names[i];
    }
    Fail(Malformed(variable, *text, expected));
  }
  void Fail(Status error) {
    if (status_.ok()) status_ = std::move(error);
  }

 private:
  struct Origin {
    std::string variable, text;
  };
  template <class T>
  void Take(std::optional<T>& field, const char* variable, const std::string& text, Result<T> value) {
    if (value.ok()) return Set(field, variable, text, *std::move(value));
    Fail(value.status());
  }

  const Variables& variables_;
  std::map<const void*, Origin> origins_;
  Status status_;
};

// The first of the list stands for all where only one is asked for.
void ReadSchedulers(Reader& reader, Environment& out) {
  constexpr const char* kList = "CAIRN_SCHEDULER";
  const std::string* text = reader.Text(kList);
  if (text == nullptr) return;
  const Result<std::vector<wire::Endpoint>> list = ParseEndpoints(kList, *text);
  if (!list.ok()) return reader.Fail(list.status());
  reader.Set<std::string>(out.scheduler_host, kList, *text, list->front().host);
  reader.Set<uint16_t>(out.scheduler_port, kList, *text, list->front().port);
  out.standbys.assign(list->begin() + 1, list->end());
}

void ReadCairn(Reader& reader, Environment& out) {
  reader.Role(out.role, "CAIRN_ROLE", {"scheduler", "server", "worker"});
  reader.Host(out.scheduler_host, "CAIRN_SCHED_HOST");
  reader.Port(out.scheduler_port, "CAIRN_SCHED_PORT");
  ReadSchedulers(reader, out);
  reader.Number<uint32_t>(out.servers, "CAIRN_NUM_SERVERS", 1, kMaxNodes);
  reader.Number<uint32_t>(out.workers, "CAIRN_NUM_WORKERS", 1, kMaxNodes);
  reader.Number<uint32_t>(out.rank, "CAIRN_RANK", 0, kMaxNodes - 1);
  reader.Host(out.host, "CAIRN_HOST");
  reader.Port(out.port, "CAIRN_PORT");
  reader.Name(out.cluster_id, "CAIRN_CLUSTER_ID");
  reader.Number<uint32_t>(out.server_threads, "CAIRN_SERVER_THREADS", 1, kMaxServerThreads);
  reader.Number<uint32_t>(out.slots, "CAIRN_SLOTS", 1, kMaxSlots);
  reader.Number<uint32_t>(out.replicas, "CAIRN_REPLICAS", 0, wire::kMaxBackups);
  reader.Number<uint32_t>(out.min_in_sync, "CAIRN_MIN_IN_SYNC", 1, wire::kMaxBackups);
  reader.Name(out.state_dir, "CAIRN_STATE_DIR");
  reader.Name(out.meta, "CAIRN_META");
  reader.Timeout(out.heartbeat_ms, "CAIRN_HEARTBEAT_MS");
  reader.Timeout(out.dead_after_ms, "CAIRN_DEAD_AFTER_MS");
  reader.Timeout(out.lost_after_ms, "CAIRN_LOST_AFTER_MS");
  reader.Timeout(out.rejoin_grace_ms, "CAIRN_REJOIN_GRACE_MS");
  reader.Number<int64_t>(out.deadlock_after_ms, "CAIRN_DEADLOCK_AFTER_MS", 0, kMaxTimeoutMs);
  reader.Timeout(out.connect_timeout_ms, "CAIRN_CONNECT_TIMEOUT_MS");
  reader.Timeout(out.call_timeout_ms, "CAIRN_CALL_TIMEOUT_MS");
}

void ReadMindSpore(Reader& reader, Environment& out) {
  reader.Role(out.role, "MS_ROLE", {"MS_SCHED", "MS_PSERVER", "MS_WORKER"});
  reader.Host(out.scheduler_host, "MS_SCHED_HOST");
  reader.Port(out.scheduler_port, "MS_SCHED_PORT");
  reader.Number<uint32_t>(out.servers, "MS_SERVER_NUM", 1, kMaxNodes);
  reader.Number<uint32_t>(out.workers, "MS_WORKER_NUM", 1, kMaxNodes);
}

void ReadDmlc(Reader& reader, Environment& out) {
  reader.Role(out.role, "DMLC_ROLE", {"scheduler", "server", "worker"});
  reader.Host(out.scheduler_host, "DMLC_PS_ROOT_URI");
  reader.Port(out.scheduler_port, "DMLC_PS_ROOT_PORT");
  reader.Number<uint32_t>(out.servers, "DMLC_NUM_SERVER", 1, kMaxNodes);
  reader.Number<uint32_t>(out.workers, "DMLC_NUM_WORKER", 1, kMaxNodes);
  reader.Number<uint32_t>(out.rank, "DMLC_RANK", 0, kMaxNodes - 1);
  reader.Host(out.host, "DMLC_NODE_HOST");
}

// A Paddle server finds itself in the list by POD_IP and PADDLE_PORT; its place is its index.
void ReadPaddleServer(Reader& reader, const std::string& list_text, const std::vector<wire::Endpoint>& list,
                      Environment& out) {
  constexpr const char* kList = "PADDLE_PSERVERS_IP_PORT_LIST";
  reader.Host(out.host, "POD_IP");
  reader.Port(out.port, "PADDLE_PORT");
  if (!reader.status().ok()) return;
  std::vector<size_t> places;
  for (size_t i = 0; i < list.size(); ++i) {
    if ((!out.host || list[i].host == *out.host) && (!out.port || list[i].port == *out.port))
      places.push_back(i);
  }
  if (places.size() != 1) {
    const std::string self = (out.host ? "POD_IP=" + *out.host : "no POD_IP") + " and " +
                             (out.port ? "PADDLE_PORT=" + std::to_string(*out.port) : "no PADDLE_PORT");
    return reader.Fail({Code::kInvalidArgument,
                        self + " match " +
                            (places.empty() ? "no entry" : std::to_string(places.size()) + " entries") +
                            " of " + Quoted(kList, list_text) + ": this server can't tell which one it is"});
  }
  const size_t place = places[0];
  reader.Set<uint32_t>(out.rank, kList, list_text, static_cast<uint32_t>(place));
  reader.Set<std::string>(out.host, kList, list_text, list[place].host);
  reader.Set<uint16_t>(out.port, kList, list_text, list[place].port);
  out.hosts_scheduler = place == 0;
}

// POD_IP and PADDLE_PORT alone mean nothing: Kubernetes users set POD_IP for other reasons.
void ReadPaddle(Reader& reader, Environment& out) {
  constexpr const char* kList = "PADDLE_PSERVERS_IP_PORT_LIST";
  reader.Role(out.role, "TRAINING_ROLE", {"", "PSERVER", "TRAINER"});
  reader.Number<uint32_t>(out.workers, "PADDLE_TRAINERS_NUM", 1, kMaxNodes);
  if (out.role == wire::Role::kWorker)
    reader.Number<uint32_t>(out.rank, "PADDLE_TRAINER_ID", 0, kMaxNodes - 1);
  const std::string* text = reader.Text(kList);
  if (text == nullptr || !reader.status().ok()) return;
  const Result<std::vector<wire::Endpoint>> list = ParseEndpoints(kList, *text);
  if (!list.ok()) return reader.Fail(list.status());
  reader.Set<uint32_t>(out.servers, kList, *text, static_cast<uint32_t>(list->size()));
  reader.Set<std::string>(out.scheduler_host, kList, *text, list->front().host);
  reader.Set<uint16_t>(out.scheduler_port, kList, *text, list->front().port);
  if (out.role == wire::Role::kServer) ReadPaddleServer(reader, *text, *list, out);
}

}  // namespace

Variables ProcessVariables() {
  Variables variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos || equals == 0) continue;
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

wire::Endpoint Environment::scheduler() const {
  return {scheduler_host.value_or("127.0.0.1"), scheduler_port.value_or(0)};
}

std::vector<wire::Endpoint> Environment::schedulers() const {
  std::vector<wire::Endpoint> all = {scheduler()};
  all.insert(all.end(), standbys.begin(), standbys.end());
  return all;
}

Result<Environment> ReadEnvironment(const Variables& variables) {
  Environment out;
  Reader reader(variables);
  ReadCairn(reader, out);
  ReadMindSpore(reader, out);
  ReadPaddle(reader, out);
  ReadDmlc(reader, out);
  std::optional<uint32_t> verbose;
  reader.Number<uint32_t>(verbose, "CAIRN_VERBOSE", 0, 9);
  reader.Number<uint32_t>(verbose, "PS_VERBOSE", 0, 9);
  out.verbose = verbose.value_or(0);
  const int64_t heartbeat_ms = out.heartbeat_ms.value_or(1000),
                dead_after_ms = out.dead_after_ms.value_or(5000);
  if ((out.heartbeat_ms || out.dead_after_ms) && dead_after_ms < 2 * heartbeat_ms) {
    reader.Fail({Code::kInvalidArgument,
                 "CAIRN_DEAD_AFTER_MS=" + std::to_string(dead_after_ms) +
                     " is less than twice CAIRN_HEARTBEAT_MS=" + std::to_string(heartbeat_ms) +
                     ": a healthy node would be taken for dead; set both"});
  }
  if (!reader.status().ok()) return reader.status();
  return out;
}

void RemoveRoleVariables(Variables& variables) {
  for (const char* name : {"CAIRN_ROLE",
                           "CAIRN_SCHED_HOST",
                           "CAIRN_SCHED_PORT",
                           "CAIRN_SCHEDULER",
                           "CAIRN_NUM_SERVERS",
                           "CAIRN_NUM_WORKERS",
                           "CAIRN_RANK",
                           "CAIRN_HOST",
                           "CAIRN_PORT",
                           "CAIRN_CLUSTER_ID",
                           "CAIRN_STATE_DIR",
                           "CAIRN_META",
                           "MS_ROLE",
                           "MS_SCHED_HOST",
                           "MS_SCHED_PORT",
                           "MS_SERVER_NUM",
                           "MS_WORKER_NUM",
                           "TRAINING_ROLE",
                           "PADDLE_PSERVERS_IP_PORT_LIST",
                           "PADDLE_PORT",
                           "PADDLE_TRAINERS_NUM",
                           "PADDLE_TRAINER_ID",
                           "DMLC_ROLE",
                           "DMLC_PS_ROOT_URI",
                           "DMLC_PS_ROOT_PORT",
                           "DMLC_NUM_SERVER",
                           "DMLC_NUM_WORKER",
                           "DMLC_RANK",
                           "DMLC_NODE_HOST"}) {
    variables.erase(name);
  }
}

Status RequireScheduler(const Environment& environment) {
  if (environment.scheduler_port.value_or(0) != 0) return Status::Ok();
  return {Code::kInvalidArgument,
          "where is the scheduler? Set CAIRN_SCHED_HOST and CAIRN_SCHED_PORT, or CAIRN_SCHEDULER (or "
          "MS_SCHED_HOST and MS_SCHED_PORT, "
          "DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT, PADDLE_PSERVERS_IP_PORT_LIST), or start with `cairn run`"};
}

Result<wire::Endpoint> ParseEndpoint(std::string_view what, std::string_view text) {
  const size_t colon = text.rfind(':');
  std::string_view host = text.substr(0, colon == std::string_view::npos ? 0 : colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (!IsHost(host) || (!bracketed && host.find(':') != std::string_view::npos)) {
    return Malformed(what, text, "host:port");
  }
  Result<uint16_t> port =
      ParseNumber<uint16_t>(what, text.substr(colon + 1), 0, std::numeric_limits<uint16_t>::max());
  if (!port.ok()) return Malformed(what, text, "host:port with a port from 0 to 65535");
  return wire::Endpoint{std::string(host), *port};
}

Result<std::vector<wire::Endpoint>> ParseEndpoints(std::string_view what, std::string_view text) {
  std::vector<wire::Endpoint> list;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    Result<wire::Endpoint> endpoint = ParseEndpoint(what, rest.substr(0, comma));
    if (!endpoint.ok()) return endpoint.status();
    if (endpoint->port == 0) return Malformed(what, text, "a list of host:port with ports from 1 to 65535");
    if (std::find(list.begin(), list.end(), *endpoint) != list.end()) {
      return Result<std::vector<wire::Endpoint>>(
          Code::kInvalidArgument, std::string(what) + " names " + wire::ToString(*endpoint) + " twice");
    }
    if (list.size() == kMaxNodes) return Malformed(what, text, "a list of at most 65535 addresses");
    list.push_back(*std::move(endpoint));
    if (comma == std::string_view::npos) return list;
    rest.remove_prefix(comma + 1);
  }
}

Result<scheduler::EtcdOptions> ParseMeta(std::string_view what, std::string_view text) {
  constexpr std::string_view kScheme = "etcd://";
  constexpr size_t kMaxPrefixBytes = 200;
  if (!text.starts_with(kScheme))
    return Malformed(what, text, "etcd://HOST:PORT,HOST:PORT/PREFIX (without TLS, and it is the only kind)");
  std::string_view rest = text.substr(kScheme.size());
  const size_t slash = rest.find('/');
  Result<std::vector<wire::Endpoint>> members = ParseEndpoints(what, rest.substr(0, slash));
  if (!members.ok())
    return Malformed(what, text, "etcd://HOST:PORT,HOST:PORT/PREFIX (" + members.status().message() + ")");
  scheduler::EtcdOptions options;
  options.members = *std::move(members);
  if (slash == std::string_view::npos) return options;
  rest.remove_prefix(slash);
  while (rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.empty()) return options;
  if (rest.size() > kMaxPrefixBytes ||
      !std::all_of(rest.begin(), rest.end(), [](char c) { return c > ' ' && c < 0x7f; }))
    return Malformed(what, text, "etcd://HOST:PORT/PREFIX with a prefix of up to 200 printable characters");
  options.prefix = std::string(rest);
  return options;
}

}  // namespace cairn::cluster

namespace cairn {

Result<ClientOptions> ClientOptions::FromEnvironment() {
  const Result<cluster::Environment> environment = cluster::ReadEnvironment(cluster::ProcessVariables());
  if (!environment.ok()) return environment.status();
  if (environment->role && *environment->role != wire::Role::kWorker) {
    return Result<ClientOptions>(Code::kInvalidArgument,
                                 std::string("the environment says that this process is a ") +
                                     (*environment->role == wire::Role::kServer ? "server" : "scheduler") +
                                     ", and only a worker connects as a client: start it with `cairn " +
                                     (*environment->role == wire::Role::kServer ? "server" : "scheduler") +
                                     "`");
  }
  if (const Status status = cluster::RequireScheduler(*environment); !status.ok()) return status;
  ClientOptions options;
  options.scheduler_host = environment->scheduler().host;
  options.scheduler_port = environment->scheduler().port;
  for (const wire::Endpoint& standby : environment->standbys)
    options.more_schedulers.push_back({standby.host, standby.port});
  options.cluster_id = environment->cluster_id.value_or("");
  if (environment->rank) options.rank = static_cast<int32_t>(*environment->rank);
  options.connect_timeout_ms = environment->connect_timeout_ms.value_or(options.connect_timeout_ms);
  options.call_timeout_ms = environment->call_timeout_ms.value_or(options.call_timeout_ms);
  return options;
}

}  // namespace cairn
