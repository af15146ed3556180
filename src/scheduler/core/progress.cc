#include "scheduler/core/progress.h"

#include <string>
#include <utility>
#include <vector>

#include "base/planted.h"
#include "scheduler/rules/job_end.h"
#include "scheduler/rules/user_text.h"
#include "scheduler/rules/views.h"

namespace cairn::scheduler {

bool Progress::Advance(int64_t now_us) {
  const DurableState& durable = journal_.durable();
  if (!journal_.ok() || durable.over()) return false;
  if (JobIsOver(durable)) {
    DurableState next = journal_.Next();
    EndJob(next);
    return journal_.Commit(std::move(next));
  }
  if (ReadyToForm(durable)) {
    DurableState next = journal_.Next();
    Form(next);
    return journal_.Commit(std::move(next));
  }
  if (!durable.running()) return moves_.Advance(now_us);
  if (durable.state.pending_view != ViewNumber(0))
    return views_.NotHolding(durable.state).empty() ? MakeView() : moves_.Advance(now_us);
  if (tables_.CarryOut()) return true;
  const std::vector<uint32_t> waiting = WaitingRanks(durable.state);
  if (waiting.empty()) return moves_.Advance(now_us);
  DurableState next = journal_.Next();
  BeginView(next);
  if (!journal_.Commit(std::move(next))) return false;
  log_("view " + std::to_string(journal_.state().pending_view.value) + " is being made, for " +
       Listed("rank", waiting));
  return true;
}

bool Progress::MakeView() {
  const std::vector<uint32_t> waiting = WaitingRanks(journal_.state());
  DurableState next = journal_.Next();
  FinishView(next, views_.OpenRounds(journal_.state()));
  if (CAIRN_BUG(kPickNotLogged)) {
    for (const auto& [node, connection] : connections_.nodes())
      if (connection.conn != ConnId(0)) connections_.Send(connection.conn, wire::StateMessage{next.state});
  }
  if (!journal_.Commit(std::move(next))) return false;
  log_("view " + std::to_string(journal_.state().view.value) + ": " +
       (waiting.empty() ? std::string("nobody") : Listed("rank", waiting)) + " joined");
  return true;
}

void Progress::LogPhase() const {
  const wire::ClusterState& state = journal_.state();
  if (journal_.durable().running())
    log_("the scheduler is connected to " + std::to_string(state.workers.size()) + " workers and " +
         std::to_string(state.servers.size()) + " servers");
  if (state.phase == wire::Phase::kEnded)
    log_("the job has ended: " + Count(state.done_ranks.size(), "worker") + " done, " +
         std::to_string(journal_.durable().given_up_ranks.size()) + " given up");
  if (state.phase == wire::Phase::kFailed) log_("the job has failed: " + state.failure);
}

}  // namespace cairn::scheduler
