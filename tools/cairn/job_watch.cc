#include "job_watch.h"

#include <utility>
#include <vector>

namespace cairn::tool {
namespace {

cluster::JobSeen SeenIn(const ClusterSummary& summary) {
  cluster::JobSeen seen{.answered = true};
  seen.over = summary.phase == "ended" || summary.phase == "failed";
  seen.failure = summary.phase == "failed" ? summary.failure : "";
  seen.anybody_joined = summary.anybody_joined();
  seen.given_up = summary.given_up_ranks;
  return seen;
}

}  // namespace

// The numbers of the current servers become those of the job so far.
void JobWatch::Count(ClusterSummary& summary) {
  std::vector<cluster::ServerCounts> servers;
  for (const ClusterSummary::Server& server : summary.each) servers.push_back(server.counts);
  const cluster::JobCounts::Totals totals = counts_.Next(servers, MonotonicMs());
  summary.rounds = totals.rounds;
  summary.pushes = totals.pushes;
  rounds_per_s_ = totals.rounds_per_s;
}

std::optional<JobWatch::News> JobWatch::Take() {
  std::optional<StatusPoller::Answer> answer = poller_.Take();
  if (!answer) return std::nullopt;
  News news{.first = last() == nullptr};
  silent_ = !answer->summary.has_value();
  const int64_t asked_ms = answer->asked_ms;
  if (answer->summary) {
    Count(*answer->summary);
    const ClusterSummary& summary = *answer->summary;
    news.seen = SeenIn(summary);
    news.seen.servers.wanted = summary.servers_wanted;
    news.seen.lost_after_ms = summary.lost_after_ms;
    news.seen.replicas = summary.replicas;
    news.seen.copied = summary.copied_but_for(0);
    news.summary = summary;
    if (!news.seen.over) last_ = *std::move(answer);
  }
  news.seen.asked_ms = asked_ms;
  return news;
}

std::optional<cluster::JobSeen> JobWatch::TakeFinal(const std::string& line) {
  Result<ClusterSummary> summary = ParseSummary(line);
  if (!summary.ok()) return std::nullopt;
  final_ = std::move(summary).value();
  Count(*final_);
  cluster::JobSeen seen = SeenIn(*final_);
  seen.asked_ms = MonotonicMs();
  seen.over = true;
  return seen;
}

std::string JobWatch::CountsText() const {
  if (!final_) return "";
  const std::string least = counts_.incomplete() ? ", at least " : ", ";
  if (final_->rounds > 0) return least + Counted(final_->rounds, "round");
  if (final_->pushes > 0) return least + std::to_string(final_->pushes) + " pushes";
  return "";
}

}  // namespace cairn::tool
