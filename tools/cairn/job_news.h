// What the launcher says of an answer of the scheduler's: that partitions are being copied, that the job
// stands still, that the scheduler is another job's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/supervise/copies_watch.h"
#include "cluster/supervise/standstill_watch.h"
#include "cluster/supervise/supervise_options.h"
#include "meeting_place.h"
#include "status_poller.h"

namespace cairn::tool {

class JobNews {
 public:
  // `place` must live longer.
  explicit JobNews(const MeetingPlace& place) : place_(place) {}
  // What there is to say. `given_up`: servers of this launcher.
  std::vector<std::string> Next(const ClusterSummary& summary, uint32_t given_up, int64_t now_ms);

 private:
  std::string StandsStill(const ClusterSummary& summary, uint32_t given_up) const;

  const MeetingPlace& place_;
  cluster::CopiesWatch copies_;
  cluster::StandstillWatch standstill_;
};

// Why this can't be the job that this launcher has a share of; empty: it is. Another launcher's mistake would
// otherwise be a wait for nodes that never come.
std::string WhyAnotherJob(const ClusterSummary& summary, const cluster::SuperviseOptions& share,
                          const MeetingPlace& place);

}  // namespace cairn::tool
