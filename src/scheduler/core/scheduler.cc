#include "scheduler/core/scheduler.h"

#include <utility>

#include "scheduler/core/core.h"

namespace cairn::scheduler {

Result<std::unique_ptr<Scheduler>> Scheduler::Start(const SchedulerOptions& options, MetaStore& store,
                                                    Network& network, BufferPool& pool, int64_t now_us,
                                                    LogLine log, SchedulerObserver* observer) {
  if (!log) log = [](const std::string&) {};
  auto core =
      std::make_unique<SchedulerCore>(options, store, network, pool, now_us, std::move(log), observer);
  if (Status status = core->Init(now_us); !status.ok()) return status;
  return std::unique_ptr<Scheduler>(std::move(core));
}

}  // namespace cairn::scheduler
