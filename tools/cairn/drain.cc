#include "drain.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "commands.h"
#include "progress.h"
#include "scheduler_call.h"
#include "status_poller.h"
#include "status_text.h"

namespace cairn::tool {
namespace {

using Json = nlohmann::json;

constexpr auto kAskEvery = std::chrono::milliseconds(500);
constexpr int64_t kDrainAnswerMs = 1'000;
constexpr int64_t kAnswerMs = 5'000;  // until one that can be reached again has answered
// A killed one is back long before; one that is cut off for so long ends the job itself (its lost_after).
constexpr int64_t kSchedulerAwayMs = 65'000;

uint64_t Count(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

bool Is(const Json& server, const char* key) {
  const auto found = server.find(key);
  return found != server.end() && found->is_boolean() && found->get<bool>();
}

}  // namespace

Drain::Drain(server::ServerNode& node, std::vector<wire::Endpoint> schedulers, int64_t timeout_ms)
    : node_(node), schedulers_(std::move(schedulers)), timeout_ms_(timeout_ms), away_ms_(kSchedulerAwayMs) {}

Drain::~Drain() {
  {
    const MutexLock lock(mutex_);
    end_ = true;
  }
  wake_.WakeAll();
  if (thread_.joinable()) thread_.join();
}

void Drain::Begin() {
  if (begun_.exchange(true)) return;
  begun_ms_ = heard_ms_ = MonotonicMs();
  if (timeout_ms_ == 0) return StopBecause("no time was given to move its partitions away");
  PrintLine("its partitions move to other servers first; a second signal ends it at once");
  node_.Drain();
  thread_ = std::thread([this] { Loop(); });
}

void Drain::StopBecause(const std::string& why) {
  PrintLine("goes at once: " + why);
  stopped_ = true;
  node_.Stop();
}

void Drain::Loop() {
  for (;;) {
    const std::string obstacle = Obstacle(MonotonicMs());
    if (!obstacle.empty()) return StopBecause(obstacle);
    const MutexLock lock(mutex_);
    const auto again = Condition::Clock::now() + kAskEvery;
    while (!end_ && wake_.WaitUntil(mutex_, again)) continue;
    if (end_) return;
  }
}

std::string Drain::Obstacle(int64_t now_ms) {
  if (now_ms - begun_ms_ >= timeout_ms_)
    return "its partitions have not moved away within " + Seconds(timeout_ms_) + " (--drain-timeout)";
  const Result<wire::Endpoint> leader = FindLeader(schedulers_, kDrainAnswerMs);
  const Result<std::string> text =
      leader.ok() ? AskStatus(*leader, kDrainAnswerMs) : Result<std::string>(leader.status());
  if (!text.ok()) {
    if (!node_.job_begun()) return "the job has not begun, and no scheduler answers";
    if (!node_.has_peers() && now_ms - heard_ms_ >= kAnswerMs)
      return "no other server is there that could take its partitions, and no scheduler answers: they go "
             "with it, and "
             "the job ends";
    if (now_ms - heard_ms_ < away_ms_) return "";
    return "no scheduler has answered for " + Seconds(away_ms_);
  }
  heard_ms_ = now_ms;
  const Json status = Json::parse(*text, nullptr, false);
  if (const uint64_t lost_after_ms = Count(status, "lost_after_ms"); lost_after_ms > 0)
    away_ms_ = static_cast<int64_t>(lost_after_ms) + kAnswerMs;
  const std::string phase = status.value("phase", "");
  if (phase == "forming") return "the job has not begun";
  const auto servers = status.find("servers");
  if (phase != "running" || servers == status.end() || !servers->is_array()) return "";
  const std::string self = wire::ToString(node_.endpoint());
  // Of the others: those that stay, that want to go, and that were only asked to: one of these stays as soon
  // as the scheduler knows that this server wants to go.
  size_t others = 0, wanting = 0, asked = 0;
  std::string progress;
  for (const Json& server : *servers) {
    if (!server.is_object()) continue;
    if (server.value("endpoint", "") != self) {
      (!Is(server, "leaving") ? others : Is(server, "wants_to_leave") ? wanting : asked) += 1;
      continue;
    }
    progress = "leaving: still primary of " + Counted(Count(server, "primaries"), "partition") +
               " and backup of " + std::to_string(Count(server, "backups"));
  }
  if (progress.empty()) return "";  // let go already: the word is on its way
  if (others == 0 && asked > 0) return "";
  others_seen_ |= others > 0;
  if (others == 0 && others_seen_) {
    // They died while it was on its way out: it may have the only copy.
    progress =
        "can't leave yet: no other server is left. It serves until another one has its partitions: start "
        "one; a second signal ends it at once, and the job with it";
  } else if (others == 0) {
    return (wanting == 0 ? "no other server is there that could take its partitions"
                         : "all other servers are leaving too, and nobody can take its partitions") +
           std::string(": they go with it, and the job ends");
  }
  // The others have everything, but would acknowledge nothing without it.
  if (const uint64_t must_stay = Count(status, "min_in_sync"); others > 0 && others < must_stay)
    progress =
        "can't leave yet: " + Counted(others, "other server") + " would stay, and --min-in-sync " +
        std::to_string(must_stay) + " wants " + std::to_string(must_stay) +
        ". Start another one, and it goes when that has the copies; a second signal ends it at once, and "
        "then requests wait until another one comes";
  if (std::exchange(shown_, progress) != progress) PrintLine(progress);
  return "";
}

}  // namespace cairn::tool
