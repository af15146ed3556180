// cairn stop: ends a job in good order. Each `cairn run` of it on this machine is asked to stop its workers,
// then the rest; a job without one is ended by its scheduler.
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>
#include <variant>

#include "cluster/supervise/supervise_options.h"
#include "commands.h"
#include "job_choice.h"
#include "job_files.h"
#include "job_wishes.h"
#include "progress.h"
#include "scheduler_call.h"
#include "status_poller.h"

namespace cairn::tool {
namespace {

struct StopFlags {
  std::optional<std::string> job;
  bool now = false;
  int64_t timeout_s = 60;
};

constexpr int64_t kStopAnswerMs = 2'000;
constexpr int64_t kStopEveryMs = 250;
// A scheduler that is being started again does not answer for a moment either, until its launcher has gone.
constexpr int64_t kStopGoneMs = 3'000;

Status EndByScheduler(const wire::Endpoint& scheduler) {
  const Result<wire::ControlMessage> answer =
      AskScheduler(scheduler, wire::AbortJob{std::string(cluster::kStoppedWords)}, kStopAnswerMs);
  if (!answer.ok()) return answer.status();
  if (const auto* refusal = std::get_if<wire::Refusal>(&*answer)) return {refusal->code, refusal->text};
  return Status::Ok();
}

Status StopBy(const std::vector<JobEntry>& launchers, const wire::Endpoint& scheduler) {
  if (launchers.empty()) return EndByScheduler(scheduler);
  for (const JobEntry& launcher : launchers)
    if (Status told = WriteWishes(launcher.path, {.stop = true}); !told.ok()) return told;
  return Status::Ok();
}

int RunStop(const StopFlags& flags) {
  const Result<wire::Endpoint> scheduler = ChooseScheduler(flags.job);
  if (!scheduler.ok()) return Complain("stop: " + scheduler.status().message());
  const Result<ClusterSummary> before = AskSummary(*scheduler, kStopAnswerMs);
  if (!before.ok()) return Complain("stop: " + before.status().message());
  std::vector<JobEntry> launchers;
  if (!flags.now) launchers = LaunchersOf(cluster::ProcessVariables(), before->cluster_id);
  if (Status told = StopBy(launchers, *scheduler); !told.ok()) return Complain("stop: " + told.message());
  std::printf("cluster %s: %s\n", before->cluster_id.c_str(),
              !launchers.empty()
                  ? "cairn run stops the workers (SIGTERM, 10 s later SIGKILL), then servers and scheduler"
              : flags.now ? "the scheduler ends the job for every server and worker"
                          : "no `cairn run` of it is on this machine: the scheduler ends the job for every "
                            "server and worker");
  std::fflush(stdout);
  const int64_t begin_ms = MonotonicMs(), end_ms = begin_ms + flags.timeout_s * 1000;
  const bool by_scheduler = launchers.empty();  // it has said that the job is over
  for (int64_t answered_ms = begin_ms; MonotonicMs() < end_ms;) {
    const Result<ClusterSummary> summary = AskSummary(*scheduler, kStopAnswerMs);
    const int64_t now_ms = MonotonicMs();
    if (summary.ok()) {
      answered_ms = now_ms;
    } else if (by_scheduler || LaunchersOf(cluster::ProcessVariables(), before->cluster_id).empty() ||
               now_ms - answered_ms >= kStopGoneMs) {
      std::printf("stopped, after %s\n", Seconds(now_ms - begin_ms).c_str());
      return 0;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(kStopEveryMs));  // between two looks
  }
  return Complain("stop: the scheduler is still there after " + Seconds(flags.timeout_s * 1000) +
                  "; `cairn stop --now` ends the job without waiting for `cairn run`");
}

}  // namespace

void AddStop(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("stop", "Ends a running job in good order");
  command->footer(
      "Workers get SIGTERM and 10 s to save, then servers and scheduler are stopped, and each `cairn run` "
      "of\n"
      "the job ends with exit code 143. Which job: as for cairn status.\n"
      "  cairn stop\n"
      "  cairn stop run-x4\n"
      "  cairn stop 10.0.0.1:9000 --now");
  auto flags = std::make_shared<StopFlags>();
  command->add_option("job", flags->job, kSchedulerHelp);
  command->add_flag("--now", flags->now,
                    "end it at once: workers get an error from their next call, and nobody has time to save");
  command->add_option("--timeout", flags->timeout_s, "seconds to wait at most (60)")
      ->type_name("SECONDS")
      ->check(Within(1, 1'000'000));
  command->callback([flags, &exit_code] { exit_code = RunStop(*flags); });
}

}  // namespace cairn::tool
