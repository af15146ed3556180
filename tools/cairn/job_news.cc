#include "job_news.h"

#include <optional>

#include "progress.h"

namespace cairn::tool {

std::vector<std::string> JobNews::Next(const ClusterSummary& summary, uint32_t given_up, int64_t now_ms) {
  using Standstill = cluster::StandstillWatch;
  std::vector<std::string> out;
  const bool runs = summary.phase == "running";
  if (runs && summary.slots.total != 0) {
    if (const auto news = copies_.Next(summary.slots.complete(), now_ms)) {
      out.push_back(news->complete
                        ? "every partition has all its copies again, after " + Seconds(news->after_ms)
                        : "partitions are being copied: " + std::to_string(summary.slots.in_sync) + " of " +
                              std::to_string(summary.slots.total) +
                              " have all their copies (`cairn top` shows more)");
    }
  }
  switch (standstill_.Next({.requests_wait = runs && summary.slots.blocked > 0,
                            .too_few_servers = summary.servers < summary.min_in_sync})) {
    case Standstill::News::kNone: break;
    case Standstill::News::kStandsStill: out.push_back(StandsStill(summary, given_up)); break;
    case Standstill::News::kGoesOn:
      out.emplace_back("the job goes on: every partition has enough owners in sync again");
  }
  return out;
}

std::string JobNews::StandsStill(const ClusterSummary& summary, uint32_t given_up) const {
  return "the job stands still: " + std::to_string(summary.slots.blocked) + " of " +
         Counted(summary.slots.total, "partition") + " have fewer owners in sync than --min-in-sync " +
         std::to_string(summary.min_in_sync) + " asks for" +
         (given_up == 0 ? ""
                        : ", and " + Counted(given_up, "server") + (given_up == 1 ? " was" : " were") +
                              " given up (--max-restarts)") +
         ". Start a server by hand, and it goes on (Ctrl-C ends it): cairn server --scheduler " +
         wire::ToString(place_.scheduler);
}

std::string WhyAnotherJob(const ClusterSummary& summary, const cluster::SuperviseOptions& share,
                          const MeetingPlace& place) {
  const std::string there = "the scheduler at " + wire::ToString(place.scheduler);
  if (summary.cluster_id != place.cluster_id) {
    return there + " has the job '" + summary.cluster_id + "' and not '" + place.cluster_id +
           "': give the same --job-id, --master-addr and --master-port on every node";
  }
  if (summary.expected_servers != share.nodes * share.servers ||
      summary.expected_workers != share.nodes * share.workers) {
    return there + " waits for " + Counted(summary.expected_servers, "server") + " and " +
           Counted(summary.expected_workers, "worker") + ", and here it would be " +
           std::to_string(share.nodes * share.servers) + " and " +
           std::to_string(share.nodes * share.workers) + ": give the same --nnodes, -s and -w on every node";
  }
  return "";
}

}  // namespace cairn::tool
