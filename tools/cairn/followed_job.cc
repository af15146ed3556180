#include "followed_job.h"

#include <utility>

#include "job_choice.h"
#include "job_files.h"
#include "progress.h"

namespace cairn::tool {
namespace {

constexpr int64_t kFollowAnswerMs = 5'000;
constexpr int64_t kSchedulerGoneMs = 10'000;  // one that was killed is back before

bool LaunchedHere(const std::string& cluster_id) {
  return !LaunchersOf(cluster::ProcessVariables(), cluster_id).empty();
}

}  // namespace

FollowedJob::FollowedJob(const wire::Endpoint& scheduler, std::optional<std::string> choice,
                         std::string cluster_id)
    : scheduler_(scheduler),
      choice_(std::move(choice)),
      cluster_id_(std::move(cluster_id)),
      launched_here_(LaunchedHere(cluster_id_)),
      answered_ms_(MonotonicMs()) {}

FollowedJob::Look FollowedJob::Next() {
  Result<ClusterSummary> summary = AskSummary(scheduler_, kFollowAnswerMs);
  if (!summary.ok()) {
    Look look{.summary = {}, .over = WhyGone(summary.status())};
    // Of several, another one may lead now.
    if (look.over.empty())
      if (Result<wire::Endpoint> other = ChooseScheduler(choice_); other.ok()) scheduler_ = *std::move(other);
    return look;
  }
  if (summary->cluster_id != cluster_id_)
    return {
        {},
        "the job is over: " + wire::ToString(scheduler_) + " has another one now, " + summary->cluster_id};
  if (summary->phase == "failed") return {{}, "the job has failed: " + summary->failure};
  if (summary->phase == "ended") return {{}, "the job is over"};
  answered_ms_ = MonotonicMs();
  return {std::move(summary).value(), ""};
}

// The launcher starts a killed scheduler again, and goes when the job is over.
std::string FollowedJob::WhyGone(const Status& no_answer) const {
  if (launched_here_ && !LaunchedHere(cluster_id_)) return "the job is over: its `cairn run` has ended";
  const int64_t silence_ms = MonotonicMs() - answered_ms_;
  if (silence_ms < kSchedulerGoneMs) return "";
  return "has the job ended? No answer for " + Seconds(silence_ms) + ": " + no_answer.message();
}

}  // namespace cairn::tool
