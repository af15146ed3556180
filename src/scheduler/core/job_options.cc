#include "scheduler/core/job_options.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "base/random.h"
#include "scheduler/core/deadlock_watch.h"
#include "scheduler/rules/membership.h"
#include "scheduler/rules/user_text.h"

namespace cairn::scheduler {
namespace {

std::string MadeClusterId(uint64_t seed) {
  char text[32];
  std::snprintf(text, sizeof text, "cairn-%016llx", static_cast<unsigned long long>(Mix64(seed, 0)));
  return text;
}

}  // namespace

Status CheckOptions(const SchedulerOptions& o) {
  if (o.expected_servers == 0 || o.expected_servers > 65535)
    return {Code::kInvalidArgument,
            "a job has 1 to 65535 servers, not " + std::to_string(o.expected_servers)};
  if (o.expected_workers == 0 || o.expected_workers > kMaxRanks)
    return {Code::kInvalidArgument,
            "a job starts with 1 to 65536 workers, not " + std::to_string(o.expected_workers)};
  if (o.slot_count == 0 || o.slot_count > 65536)
    return {Code::kInvalidArgument, "a cluster has 1 to 65536 slots, not " + std::to_string(o.slot_count)};
  if (o.replicas > wire::kMaxBackups)
    return {Code::kInvalidArgument, "a partition has 1 to " + std::to_string(wire::kMaxBackups) +
                                        " replicas (0: chosen), not " + std::to_string(o.replicas)};
  const uint32_t owners = std::min(o.expected_servers, o.replicas == 0 ? 2 : o.replicas);
  if (o.min_in_sync == 0 || o.min_in_sync > owners)
    return {Code::kInvalidArgument,
            "with " + Count(owners, "owner") + " of each partition, at least 1 and at most " +
                std::to_string(owners) + " of them can be asked to be in sync, not " +
                std::to_string(o.min_in_sync) + ": give more servers and replicas, or a smaller number"};
  if (o.cluster_id.size() > 255 || !IsPrintable(o.cluster_id))
    return {Code::kInvalidArgument, "the cluster id is too long or has control characters"};
  if (o.heartbeat_us <= 0 || o.dead_after_us <= 0 || o.rejoin_grace_us < 0 || o.deadlock_after_us < 0)
    return {Code::kInvalidArgument, "heartbeat and dead-after must be above 0"};
  if (o.dead_after_us < 2 * o.heartbeat_us)
    return {Code::kInvalidArgument,
            "--dead-after-ms (CAIRN_DEAD_AFTER_MS) must be at least twice --heartbeat-ms "
            "(CAIRN_HEARTBEAT_MS): a healthy node would be taken for dead"};
  if (o.deadlock_after_us != 0 && o.deadlock_after_us < DeadlockWatch::kLeastUs)
    return {Code::kInvalidArgument,
            "--deadlock-after-ms (CAIRN_DEADLOCK_AFTER_MS) is " + std::to_string(o.deadlock_after_us / 1000) +
                ": give 0 for never, or at least " + std::to_string(DeadlockWatch::kLeastUs / 1000) +
                ", since what is known of who waits is a few seconds old"};
  return Status::Ok();
}

Status CheckSameJob(const SchedulerOptions& o, const DurableState& d) {
  const wire::ClusterState& state = d.state;
  const std::string what_to_do = ": start with the same, or with another state directory for a new job";
  if (!o.cluster_id.empty() && o.cluster_id != state.cluster_id)
    return {Code::kInvalidArgument,
            "the log is of cluster " + state.cluster_id + ", not " + o.cluster_id + what_to_do};
  if (o.expected_servers != d.initial_servers || o.expected_workers != state.expected_workers)
    return {Code::kInvalidArgument, "the log is of a job with " + Count(d.initial_servers, "server") +
                                        " and " + Count(state.expected_workers, "worker") + what_to_do};
  if (o.slot_count != d.slot_count)
    return {Code::kInvalidArgument,
            "the log is of a cluster with " + Count(d.slot_count, "slot") + what_to_do};
  return Status::Ok();
}

DurableState NewJob(const SchedulerOptions& o) {
  DurableState durable;
  wire::ClusterState& state = durable.state;
  state.cluster_id = o.cluster_id.empty() ? MadeClusterId(o.cluster_seed) : o.cluster_id;
  state.expected_servers = o.expected_servers;
  state.expected_workers = o.expected_workers;
  durable.initial_servers = o.expected_servers;
  durable.slot_count = o.slot_count;
  return durable;
}

std::vector<std::string> StartLines(const SchedulerOptions& o, const DurableState& durable,
                                    uint32_t replicas_before) {
  const wire::ClusterState& state = durable.state;
  std::vector<std::string> lines;
  if (durable.end_told)
    lines.emplace_back(
        "the job of this log is over, and everybody has been told: a new one needs another place for its "
        "state");
  lines.push_back("Bind to role=scheduler, id=1, ip=" + o.endpoint.host +
                  ", port=" + std::to_string(o.endpoint.port));
  if (state.term.value <= 1) return lines;
  lines.push_back("started again, term " + std::to_string(state.term.value) + ": the log has view " +
                  std::to_string(state.view.value) + ", " + Count(state.servers.size(), "server") + " and " +
                  Count(state.workers.size(), "worker"));
  if (state.replicas != replicas_before)
    lines.push_back("each partition had " + Count(replicas_before, "owner") + " in the log, and is to have " +
                    std::to_string(state.replicas) + " from now on (--replicas)");
  return lines;
}

}  // namespace cairn::scheduler
