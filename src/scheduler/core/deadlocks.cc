#include "scheduler/core/deadlocks.h"

#include <algorithm>
#include <string>
#include <vector>

namespace cairn::scheduler {

Deadlocks::Deadlocks(int64_t after_us, int64_t heartbeat_us, const Journal& journal, const Barriers& barriers,
                     Connections& connections, const LogLine& log)
    : heartbeat_us_(heartbeat_us),
      journal_(journal),
      barriers_(barriers),
      connections_(connections),
      log_(log),
      watch_(after_us, 3 * std::max<int64_t>(heartbeat_us, 1'000'000)) {}

void Deadlocks::OnBlocked(ConnId conn, const wire::Blocked& report, int64_t now_us) {
  if (connections_.SpeakerOn(conn) != report.incarnation) return;
  watch_.Take(report, now_us);
  if (const auto verdict = watch_.Verdict(report)) connections_.Send(conn, *verdict);
}

void Deadlocks::OnTick(int64_t now_us) {
  if (!journal_.durable().running() || now_us - looked_us_ < heartbeat_us_) return;
  looked_us_ = now_us;
  std::vector<DeadlockWatch::Worker> workers;
  for (const wire::WorkerInfo& worker : journal_.state().workers) {
    if (worker.join_view == ViewNumber(0)) continue;
    // One that has not been heard yet may be in any barrier, and is not known to wait.
    workers.push_back({worker.incarnation, worker.rank, barriers_.Count(worker.incarnation)});
  }
  if (const std::string found = watch_.Look(workers, now_us); !found.empty()) log_(found);
}

}  // namespace cairn::scheduler
