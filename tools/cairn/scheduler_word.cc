#include "scheduler_word.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "scheduler_call.h"

namespace cairn::tool {
namespace {

using wire::Role;

void JudgeServer(NodeProcess& node, NodeProcesses& all, const ClusterSummary* now, const ClusterSummary* last,
                 cluster::ProcessEnd& end) {
  const ClusterSummary* newest = now != nullptr ? now : last;
  if (newest == nullptr) return;
  const ClusterSummary::Server* entry = node.EntryIn(*newest);
  if (newest->phase == "running") {
    cluster::ServersSeen seen{newest->servers_wanted, all.LeavingHere(*newest)};
    // It ends well only if it was let go, and the scheduler has forgotten it by then.
    if ((entry != nullptr && entry->leaving) || (now != nullptr && end.clean()))
      seen.leaving.insert(node.name().index);
    end.servers = std::move(seen);
  }
  if (entry != nullptr) node.OnGone(entry->counts.incarnation);
  if (now != nullptr && now->phase == "running" && !end.clean()) end.has_copies = now->copied_but_for(1);
}

}  // namespace

bool TellOf(const cluster::SuperviseAction& action, const wire::Endpoint& scheduler) {
  using Kind = cluster::SuperviseAction::Kind;
  constexpr int64_t kTellTimeoutMs = 500, kAbortTimeoutMs = 2'000;
  if (scheduler.port == 0) return false;
  if (action.kind == Kind::kAbort) {
    // Its answer says that every node has been told. No answer: they will find out.
    return AskScheduler(scheduler, wire::AbortJob{action.text}, kAbortTimeoutMs).ok();
  }
  if (action.kind == Kind::kEnded) {
    const wire::ProcessEnded word{action.ended.uid, action.ended.out_of_memory};
    const auto answer = AskScheduler(scheduler, word, kTellTimeoutMs);
    return answer.ok() && std::holds_alternative<wire::StatusReply>(*answer);
  }
  // The supervisor repeats it, so one that fails is no error.
  return TellScheduler(scheduler, wire::GiveUp{action.node.index}, kTellTimeoutMs).ok();
}

JudgedEnd JudgeEnd(NodeProcess& node, NodeProcesses& all, const wire::Endpoint& scheduler,
                   const ClusterSummary* last) {
  constexpr int64_t kAskTimeoutMs = 500;
  JudgedEnd judged{.end = node.end(), .failure = {}};
  cluster::ProcessEnd& end = judged.end;
  const bool server = node.name().role == Role::kServer;
  if (node.name().role == Role::kScheduler || (end.clean() && !server) || scheduler.port == 0) return judged;
  const Result<ClusterSummary> summary = AskSummary(scheduler, kAskTimeoutMs);
  if (server) JudgeServer(node, all, summary.ok() ? &*summary : nullptr, last, end);
  if (!summary.ok() || server) return judged;
  const std::vector<uint32_t>& done = summary->done_ranks;
  end.left_job = end.signal != 0 && std::find(done.begin(), done.end(), node.name().index) != done.end();
  if (summary->phase == "failed") judged.failure = summary->failure;
  return judged;
}

}  // namespace cairn::tool
