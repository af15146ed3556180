#include "status_poller.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "scheduler_call.h"

namespace cairn::tool {
namespace {

using Json = nlohmann::json;

constexpr auto kPollEvery = std::chrono::milliseconds(1000);
constexpr int64_t kPollAnswerMs = 1000;

std::string Word(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}
double AtLeastZero(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? std::max(0.0, found->get<double>()) : 0;
}
const Json& List(const Json& object, const char* key) {
  static const Json kNothing = Json::array();
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? *found : kNothing;
}

}  // namespace

int64_t MonotonicMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Result<ClusterSummary> ParseSummary(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object())
    return Result<ClusterSummary>(Code::kProtocol, "the scheduler's answer can't be read");
  ClusterSummary out;
  out.cluster_id = Word(json, "cluster_id");
  out.phase = Word(json, "phase");
  out.failure = Word(json, "failure");
  out.awaiting = Word(json, "awaiting");
  out.lost_after_ms = static_cast<int64_t>(AtLeastZero(json, "lost_after_ms"));
  for (const Json& worker : List(json, "workers"))
    if (worker.is_object()) out.live_ranks.push_back(static_cast<uint32_t>(AtLeastZero(worker, "rank")));
  out.expected_servers = static_cast<uint32_t>(AtLeastZero(json, "expected_servers"));
  out.expected_workers = static_cast<uint32_t>(AtLeastZero(json, "expected_workers"));
  out.view = static_cast<uint64_t>(AtLeastZero(json, "view"));
  out.workers = static_cast<uint32_t>(List(json, "workers").size());
  for (const Json& rank : List(json, "done_ranks"))
    if (rank.is_number_unsigned()) out.done_ranks.push_back(rank.get<uint32_t>());
  for (const Json& rank : List(json, "given_up_ranks"))
    if (rank.is_number_unsigned()) out.given_up_ranks.insert(rank.get<uint32_t>());
  out.done = static_cast<uint32_t>(out.done_ranks.size());
  out.servers_wanted = static_cast<uint32_t>(AtLeastZero(json, "servers_wanted"));
  out.replicas = static_cast<uint32_t>(AtLeastZero(json, "replicas"));
  out.min_in_sync = static_cast<uint32_t>(AtLeastZero(json, "min_in_sync"));
  out.moves_done = static_cast<uint64_t>(AtLeastZero(json, "moves_done"));
  out.failovers = static_cast<uint64_t>(AtLeastZero(json, "failovers"));
  if (const auto slots = json.find("slots"); slots != json.end() && slots->is_object()) {
    const auto count = [&](const char* key) { return static_cast<uint32_t>(AtLeastZero(*slots, key)); };
    out.slots = {count("total"),
                 count("settled"),
                 count("copying"),
                 count("handing_over"),
                 count("single"),
                 count("blocked"),
                 0};
    if (const auto moves = json.find("moves"); moves != json.end() && moves->is_object())
      out.slots.to_copy = static_cast<uint32_t>(AtLeastZero(*moves, "to_copy"));
  }
  for (const Json& server : List(json, "servers")) {
    if (!server.is_object()) continue;
    ++out.servers;
    ClusterSummary::Server& one = out.each.emplace_back();
    one.counts.incarnation = static_cast<uint64_t>(AtLeastZero(server, "incarnation"));
    one.endpoint = Word(server, "endpoint");
    if (const auto leaving = server.find("leaving"); leaving != server.end() && leaving->is_boolean())
      one.leaving = leaving->get<bool>();
    out.servers_leaving += one.leaving ? 1 : 0;
    if (const auto there = server.find("connected"); there != server.end() && there->is_boolean())
      out.servers_connected += there->get<bool>() ? 1 : 0;
    out.pushes_per_s += AtLeastZero(server, "pushes_per_s");
    out.bytes_per_s += AtLeastZero(server, "bytes_per_s");
    const auto stats = server.find("stats");
    if (stats == server.end() || !stats->is_object()) continue;
    out.rounds = std::max(out.rounds, static_cast<uint64_t>(AtLeastZero(*stats, "rounds")));
    out.pushes += static_cast<uint64_t>(AtLeastZero(*stats, "pushes"));
    one.counts.rounds = static_cast<uint64_t>(AtLeastZero(*stats, "rounds"));
    one.counts.pushes = static_cast<uint64_t>(AtLeastZero(*stats, "pushes"));
  }
  for (const Json& table : List(json, "tables")) {
    if (table.is_object() && Word(table, "mode") == "sync") out.sync_tables = true;
  }
  return out;
}

Result<ClusterSummary> AskSummary(const wire::Endpoint& scheduler, int64_t timeout_ms) {
  const Result<wire::ControlMessage> answer = AskScheduler(scheduler, wire::StatusRequest{1}, timeout_ms);
  if (!answer.ok()) return answer.status();
  if (const auto* reply = std::get_if<wire::StatusReply>(&*answer)) return ParseSummary(reply->json);
  return Result<ClusterSummary>(Code::kProtocol, wire::ToString(scheduler) + " is no scheduler");
}

StatusPoller::~StatusPoller() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  wake_.WakeAll();
  thread_.join();
}

void StatusPoller::Start(const wire::Endpoint& scheduler) {
  scheduler_ = scheduler;
  thread_ = std::thread([this] { Loop(); });
}

void StatusPoller::Hurry() {
  {
    const MutexLock lock(mutex_);
    hurry_ = true;
  }
  wake_.WakeAll();
}

std::optional<StatusPoller::Answer> StatusPoller::Take() {
  const MutexLock lock(mutex_);
  return std::exchange(newest_, std::nullopt);
}

void StatusPoller::Loop() {
  for (;;) {
    Answer answer;
    answer.asked_ms = MonotonicMs();
    Result<ClusterSummary> summary = AskSummary(scheduler_, kPollAnswerMs);
    if (summary.ok()) answer.summary = std::move(summary).value();
    const MutexLock lock(mutex_);
    newest_ = std::move(answer);
    const auto again = Condition::Clock::now() + kPollEvery;
    while (!stop_ && !hurry_ && wake_.WaitUntil(mutex_, again)) continue;
    if (stop_) return;
    hurry_ = false;
  }
}

}  // namespace cairn::tool
