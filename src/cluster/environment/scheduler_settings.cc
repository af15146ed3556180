#include "cluster/environment/scheduler_settings.h"

namespace cairn::cluster {

void ApplySettings(const Environment& environment, scheduler::SchedulerOptions& options) {
  const auto apply = [](auto& option, const auto& variable) {
    if (variable) option = *variable;
  };
  const auto apply_ms = [](int64_t& option_us, const std::optional<int64_t>& variable_ms) {
    if (variable_ms) option_us = *variable_ms * 1000;
  };
  apply(options.cluster_id, environment.cluster_id);
  apply(options.expected_servers, environment.servers);
  apply(options.expected_workers, environment.workers);
  apply(options.slot_count, environment.slots);
  apply(options.replicas, environment.replicas);
  apply(options.min_in_sync, environment.min_in_sync);
  apply_ms(options.heartbeat_us, environment.heartbeat_ms);
  apply_ms(options.dead_after_us, environment.dead_after_ms);
  apply_ms(options.lost_after_us, environment.lost_after_ms);
  apply_ms(options.rejoin_grace_us, environment.rejoin_grace_ms);
  apply_ms(options.deadlock_after_us, environment.deadlock_after_ms);
}

}  // namespace cairn::cluster
