// cairn scale: how many servers a running job should have. The scheduler moves partitions to those
// that come and off those that go; `cairn run` starts the processes.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>
#include <variant>

#include "commands.h"
#include "job_choice.h"
#include "progress.h"
#include "scheduler_call.h"
#include "status_poller.h"

namespace cairn::tool {
namespace {

struct ScaleFlags {
  std::optional<std::string> scheduler;
  uint32_t servers = 0;
  bool no_wait = false;
  int64_t timeout_s = 600;
};

constexpr int64_t kScaleAnswerMs = 5'000;
constexpr int64_t kEveryMs = 500;
// Moves come a few at a time: so many quiet answers in a row say that there are no more to come.
constexpr int kQuietAnswers = 4;
constexpr int64_t kNobodyComesMs = 3'000;

uint32_t Staying(const ClusterSummary& summary) {
  return summary.servers - std::min(summary.servers, summary.servers_leaving);
}

std::string Progress(const ClusterSummary& summary) {
  std::string text = Counted(Staying(summary), "server");
  if (summary.servers_leaving > 0) text += ", " + std::to_string(summary.servers_leaving) + " leaving";
  text += "; " + std::to_string(summary.slots.in_sync) + " of " + Counted(summary.slots.total, "partition") +
          " have all their copies";
  if (summary.slots.copying > 0) text += ", " + std::to_string(summary.slots.copying) + " being copied";
  if (summary.slots.handing_over > 0)
    text += ", " + std::to_string(summary.slots.handing_over) + " going over to another primary";
  return text + "; " + std::to_string(summary.moves_done) + " moves so far";
}

void SayHowToStart(const wire::Endpoint& scheduler, uint32_t missing) {
  std::printf(
      "%s not come yet. Where no `cairn run` starts them (or has given up on them), start %s by hand:\n"
      "  cairn server --scheduler %s\n",
      (Counted(missing, "server") + (missing == 1 ? " has" : " have")).c_str(),
      missing == 1 ? "it" : "each of them", wire::ToString(scheduler).c_str());
  std::fflush(stdout);
}

int WaitForBalance(wire::Endpoint scheduler, const ScaleFlags& flags) {
  const int64_t begin_ms = MonotonicMs(), end_ms = begin_ms + flags.timeout_s * 1000;
  std::string shown;
  bool told = false;
  uint64_t moves = 0;
  for (int quiet = 0; MonotonicMs() < end_ms;) {
    // A scheduler that is being started again does not answer for a moment.
    const Result<ClusterSummary> summary = AskSummary(scheduler, kScaleAnswerMs);
    if (summary.ok()) {
      if (summary->phase == "failed") return Complain("scale: the job has failed: " + summary->failure);
      if (summary->phase == "ended") return Complain("scale: the job is over");
      if (summary->servers_wanted != 0 && summary->servers_wanted != flags.servers)
        return Complain("scale: somebody has asked for " + Counted(summary->servers_wanted, "server") +
                        " since: that counts now");
      const std::string progress = Progress(*summary);
      if (progress != shown)
        std::printf("%s  %s\n", Seconds(MonotonicMs() - begin_ms).c_str(), progress.c_str());
      shown = progress;
      std::fflush(stdout);
      const uint32_t staying = Staying(*summary);
      if (!told && staying < flags.servers && MonotonicMs() - begin_ms >= kNobodyComesMs) {
        SayHowToStart(scheduler, flags.servers - staying);
        told = true;
      }
      const bool settled = staying == flags.servers && summary->servers_leaving == 0 &&
                           summary->slots.quiet() && summary->moves_done == moves;
      moves = summary->moves_done;
      quiet = settled ? quiet + 1 : 0;
      if (quiet >= kQuietAnswers) {
        std::printf("done: %s\n", progress.c_str());
        return 0;
      }
    } else if (Result<wire::Endpoint> other = ChooseScheduler(flags.scheduler); other.ok()) {
      scheduler = *std::move(other);  // of several, another one may lead now
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(kEveryMs));  // between two looks
  }
  return Complain("scale: not done after " + Seconds(flags.timeout_s * 1000) +
                  "; it goes on, and `cairn top` shows how far it is");
}

int RunScale(const ScaleFlags& flags) {
  const Result<wire::Endpoint> scheduler = ChooseScheduler(flags.scheduler);
  if (!scheduler.ok()) return Complain("scale: " + scheduler.status().message());
  const Result<ClusterSummary> before = AskSummary(*scheduler, kScaleAnswerMs);
  if (!before.ok()) return Complain("scale: " + before.status().message());
  const Result<wire::ControlMessage> answer =
      AskScheduler(*scheduler, wire::Scale{1, flags.servers}, kScaleAnswerMs);
  if (!answer.ok()) return Complain("scale: " + answer.status().message());
  if (const auto* refusal = std::get_if<wire::Refusal>(&*answer)) return Complain("scale: " + refusal->text);
  if (!std::holds_alternative<wire::StatusReply>(*answer))
    return Complain("scale: " + wire::ToString(*scheduler) + " is no scheduler that can scale");
  const uint32_t now = Staying(*before);
  std::printf("cluster %s: %s → %u", before->cluster_id.c_str(), Counted(now, "server").c_str(),
              flags.servers);
  if (flags.servers > now) {
    std::puts(": when the new ones are there, partitions move to them while the job goes on");
  } else if (flags.servers < now) {
    const bool one = now - flags.servers == 1;
    std::printf(": %s to the others and then %s, while the job goes on\n",
                one ? "one gives its partitions" : (Counted(now - flags.servers, "server") + " give their partitions").c_str(),
                one ? "leaves" : "leave");
    if (flags.servers == 1 && now > 1)
      std::puts("with one server there is one copy of each partition: its death will end the job");
  } else {
    std::puts(": as it is");
  }
  std::fflush(stdout);
  return flags.no_wait ? 0 : WaitForBalance(*scheduler, flags);
}

}  // namespace

void AddScale(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("scale", "Changes the number of servers of a running job");
  command->footer(
      "The servers of a job that `cairn run` has started come and go by themselves; others are started by\n"
      "hand (cairn server --scheduler HOST:PORT). Nothing stops meanwhile. Which job: as for cairn status.\n"
      "  cairn scale --servers 4\n"
      "  cairn scale run-x4 --servers 4\n"
      "  cairn scale 10.0.0.1:9000 --servers 3 --no-wait");
  auto flags = std::make_shared<ScaleFlags>();
  command->add_option("-s,--servers", flags->servers, "servers that the job should have")
      ->type_name("N")
      ->required()
      ->check(Within(1, 65535));
  auto* job = command->add_option("job", flags->scheduler, kSchedulerHelp);
  command->add_option("--scheduler", flags->scheduler, "the same as an option")->excludes(job);
  command->add_flag("--no-wait", flags->no_wait, "don't wait until every partition is where it should be");
  command->add_option("--timeout", flags->timeout_s, "seconds to wait at most (600)")
      ->type_name("SECONDS")
      ->check(Within(1, 1'000'000));
  command->callback([flags, &exit_code] { exit_code = RunScale(*flags); });
}

}  // namespace cairn::tool
