// cairn scale: how many servers and workers a running job should have. The scheduler moves partitions to
// servers that come and off those that go; `cairn run` starts the processes, and stops workers.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <variant>

#include "commands.h"
#include "followed_job.h"
#include "job_choice.h"
#include "job_files.h"
#include "job_wishes.h"
#include "progress.h"
#include "scheduler_call.h"
#include "status_poller.h"

namespace cairn::tool {
namespace {

struct ScaleFlags {
  std::optional<std::string> scheduler;
  uint32_t servers = 0, workers = 0;  // 0: as many as there are
  bool no_wait = false;
  int64_t timeout_s = 600;
};

constexpr int64_t kScaleAnswerMs = 20'000;  // on a busy machine too
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

int WaitForBalance(FollowedJob job, const ScaleFlags& flags) {
  const int64_t begin_ms = MonotonicMs(), end_ms = begin_ms + flags.timeout_s * 1000;
  std::string shown;
  bool told = false;
  uint64_t moves = 0;
  for (int quiet = 0; MonotonicMs() < end_ms;) {
    const FollowedJob::Look look = job.Next();
    if (!look.over.empty()) return Complain("scale: " + look.over);
    if (const std::optional<ClusterSummary>& summary = look.summary) {
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
        SayHowToStart(job.scheduler(), flags.servers - staying);
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
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(kEveryMs));  // between two looks
  }
  return Complain("scale: not done after " + Seconds(flags.timeout_s * 1000) +
                  "; it goes on, and `cairn top` shows how far it is");
}

void SayServers(const ClusterSummary& before, const ScaleFlags& flags) {
  const uint32_t now = Staying(before);
  std::printf("cluster %s: %s → %u", before.cluster_id.c_str(), Counted(now, "server").c_str(),
              flags.servers);
  if (flags.servers > now) {
    std::puts(": when the new ones are there, partitions move to them while the job goes on");
  } else if (flags.servers < now) {
    const bool one = now - flags.servers == 1;
    std::printf(": %s to the others and then %s, while the job goes on\n",
                one ? "one gives its partitions"
                    : (Counted(now - flags.servers, "server") + " give their partitions").c_str(),
                one ? "leaves" : "leave");
    if (flags.servers == 1 && now > 1)
      std::puts("with one server there is one copy of each partition: its death will end the job");
  } else {
    std::puts(": as it is");
  }
}

// Which of the ranks that there should be are still to come, as the launchers and the scheduler say.
class Arrivals {
 public:
  Arrivals(std::string cluster_id, uint32_t workers)
      : cluster_id_(std::move(cluster_id)), workers_(workers) {}

  // How many are neither live nor done. A rank that was called back is done only when it has been live again:
  // the scheduler has it as done from before. Nothing: a launcher has not looked at the wish yet.
  std::optional<uint32_t> Missing(const ClusterSummary& summary) {
    std::set<uint32_t> called;
    for (const JobEntry& launcher : LaunchersOf(cluster::ProcessVariables(), cluster_id_)) {
      const std::optional<Following> following = ReadFollowing(launcher.path);
      if (!following || following->workers != workers_) return std::nullopt;
      called.insert(following->called.begin(), following->called.end());
    }
    const std::set<uint32_t> live(summary.live_ranks.begin(), summary.live_ranks.end());
    seen_live_.insert(live.begin(), live.end());
    const std::set<uint32_t> done(summary.done_ranks.begin(), summary.done_ranks.end());
    uint32_t missing = 0;
    for (uint32_t rank = 0; rank < workers_; ++rank) {
      const bool done_now = done.contains(rank) && (!called.contains(rank) || seen_live_.contains(rank));
      missing += live.contains(rank) || done_now ? 0 : 1;
    }
    return missing;
  }

 private:
  const std::string cluster_id_;
  const uint32_t workers_;
  std::set<uint32_t> seen_live_;  // since the launchers have looked at the wish
};

Status AskForServers(const wire::Endpoint& scheduler, uint32_t servers) {
  const Result<wire::ControlMessage> answer =
      AskScheduler(scheduler, wire::Scale{1, servers}, kScaleAnswerMs);
  if (!answer.ok()) return answer.status();
  if (const auto* refusal = std::get_if<wire::Refusal>(&*answer)) return {refusal->code, refusal->text};
  if (std::holds_alternative<wire::StatusReply>(*answer)) return Status::Ok();
  return {Code::kProtocol, wire::ToString(scheduler) + " is no scheduler that can scale"};
}

// Workers are the launchers' affair.
Status AskForWorkers(const std::string& cluster_id, uint32_t workers) {
  const std::vector<JobEntry> launchers = LaunchersOf(cluster::ProcessVariables(), cluster_id);
  if (launchers.empty())
    return {Code::kNotFound,
            "`cairn run` starts and stops workers, and none of this job is on this machine: ask there, or "
            "start and "
            "stop workers by hand, as you did the others"};
  for (const JobEntry& launcher : launchers)
    if (Status told = WriteWishes(launcher.path, {.workers = workers}); !told.ok()) return told;
  return Status::Ok();
}

int WaitForWorkers(FollowedJob job, const std::string& cluster_id, const ScaleFlags& flags) {
  const int64_t begin_ms = MonotonicMs(), end_ms = begin_ms + flags.timeout_s * 1000;
  std::string shown;
  Arrivals arrivals(cluster_id, flags.workers);
  while (MonotonicMs() < end_ms) {
    const FollowedJob::Look look = job.Next();
    if (!look.over.empty()) return Complain("scale: " + look.over);
    const std::optional<ClusterSummary>& summary = look.summary;
    if (const std::optional<uint32_t> missing = summary ? arrivals.Missing(*summary) : std::nullopt) {
      const auto too_many = std::count_if(summary->live_ranks.begin(), summary->live_ranks.end(),
                                          [&](uint32_t rank) { return rank >= flags.workers; });
      const std::string progress = Counted(summary->live_ranks.size(), "worker") + " in the job" +
                                   (too_many > 0 ? ", " + std::to_string(too_many) + " to go" : "") +
                                   (*missing > 0 ? ", " + std::to_string(*missing) + " to come" : "");
      if (std::exchange(shown, progress) != progress)
        std::printf("%s  %s\n", Seconds(MonotonicMs() - begin_ms).c_str(), progress.c_str());
      if (*missing == 0 && too_many == 0) {
        std::printf("done: %s\n", progress.c_str());
        return 0;
      }
      std::fflush(stdout);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(kEveryMs));  // between two looks
  }
  return Complain("scale: not done after " + Seconds(flags.timeout_s * 1000) + "; it goes on");
}

int RunScale(const ScaleFlags& flags) {
  if (flags.servers == 0 && flags.workers == 0)
    return ComplainOfUsage("scale: --servers or --workers is required: how many should there be?");

  const Result<wire::Endpoint> scheduler = ChooseScheduler(flags.scheduler);
  if (!scheduler.ok()) return Complain("scale: " + scheduler.status().message());
  const Result<ClusterSummary> before = AskSummary(*scheduler, kScaleAnswerMs);
  if (!before.ok()) return Complain("scale: " + before.status().message());
  if (flags.servers > 0) {
    if (Status asked = AskForServers(*scheduler, flags.servers); !asked.ok())
      return Complain("scale: " + asked.message());
  }
  if (flags.workers > 0) {
    if (before->phase == "ended" || before->phase == "failed") return Complain("scale: the job is over");
    if (Status asked = AskForWorkers(before->cluster_id, flags.workers); !asked.ok())
      return Complain("scale: " + asked.message());
    std::printf("cluster %s: %s → %u\n", before->cluster_id.c_str(),
                Counted(before->live_ranks.size(), "worker").c_str(), flags.workers);
  }
  if (flags.servers > 0) SayServers(*before, flags);
  std::fflush(stdout);
  if (flags.no_wait) return 0;
  const FollowedJob job(*scheduler, flags.scheduler, before->cluster_id);
  const int servers = flags.servers > 0 ? WaitForBalance(job, flags) : 0;
  return servers != 0 || flags.workers == 0 ? servers : WaitForWorkers(job, before->cluster_id, flags);
}

}  // namespace

void AddScale(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("scale", "Changes the number of servers or workers of a running job");
  command->footer(
      "The servers of a job that `cairn run` has started come and go by themselves; others are started by\n"
      "hand (cairn server --scheduler HOST:PORT). Nothing stops meanwhile. Which job: as for cairn status.\n"
      "  cairn scale --servers 4\n"
      "  cairn scale run-x4 --workers 8\n"
      "  cairn scale 10.0.0.1:9000 --servers 3 --no-wait");
  auto flags = std::make_shared<ScaleFlags>();
  command->add_option("-s,--servers", flags->servers, "servers that the job should have")
      ->type_name("N")
      ->check(Within(1, 65535));
  command
      ->add_option(
          "-w,--workers", flags->workers,
          "workers that the job should have: `cairn run` starts more, or sends those with the highest "
          "ranks away (SIGTERM)")
      ->type_name("N")
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
