// What the launcher knows of the job from the scheduler: asked about once a second (status_poller.h), with
// the servers' counts added up over restarts (job_counts.h), and once more at the very end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cluster/supervise/job_counts.h"
#include "cluster/supervise/supervise_options.h"
#include "progress.h"
#include "status_poller.h"
#include "wire/cluster_state.h"

namespace cairn::tool {

class JobWatch {
 public:
  void Start(const wire::Endpoint& scheduler) { poller_.Start(scheduler); }
  bool started() const { return poller_.started(); }
  // Asks again at once.
  void Hurry() { poller_.Hurry(); }

  struct News {
    cluster::JobSeen seen;                  // without the servers that leave: those are the launcher's own
    std::optional<ClusterSummary> summary;  // nothing: the scheduler did not answer
    bool first = false;                     // of all answers
  };
  // The newest answer, or that there was none, once.
  std::optional<News> Take();
  // The line that the scheduler leaves behind: the last report of every server is in it.
  std::optional<cluster::JobSeen> TakeFinal(const std::string& line);

  // Of the job as it ran; nullptr: the scheduler has not answered yet.
  const ClusterSummary* last() const { return last_.summary ? &*last_.summary : nullptr; }
  ProgressView View(int64_t elapsed_ms) const { return {elapsed_ms, silent_, last_, rounds_per_s_}; }
  // For the last line: ", 120 rounds", ", at least 7 pushes", or nothing.
  std::string CountsText() const;

 private:
  void Count(ClusterSummary& summary);

  StatusPoller poller_;
  StatusPoller::Answer last_;
  cluster::JobCounts counts_;
  double rounds_per_s_ = 0;
  bool silent_ = false;  // the scheduler has not answered the last question
  std::optional<ClusterSummary> final_;
};

}  // namespace cairn::tool
