#include "scheduler/core/launcher_requests.h"

#include <algorithm>
#include <string>
#include <utility>

#include "scheduler/rules/job_end.h"
#include "scheduler/rules/membership.h"
#include "scheduler/rules/user_text.h"

namespace cairn::scheduler {
namespace {
constexpr size_t kMaxReasonBytes = 4096;
}  // namespace

bool LauncherRequests::OnGiveUp(ConnId conn, const wire::GiveUp& give_up) {
  const bool in_job = give_up.rank < journal_.state().expected_workers ||
                      journal_.durable().joined_ranks.contains(give_up.rank) ||
                      FindWorkerOfRank(journal_.state(), Rank(give_up.rank)) != nullptr;
  const bool done = std::binary_search(journal_.state().done_ranks.begin(), journal_.state().done_ranks.end(),
                                       give_up.rank);
  if (!in_job) {
    connections_.Refuse(conn, Code::kInvalidArgument, "this job has no rank " + std::to_string(give_up.rank));
    return false;
  }
  if (!done && !journal_.durable().over() && !journal_.durable().given_up_ranks.contains(give_up.rank)) {
    DurableState next = journal_.Next();
    next.given_up_ranks.insert(give_up.rank);
    if (!journal_.Commit(std::move(next))) return false;
    log_("rank " + std::to_string(give_up.rank) + " is given up");
  }
  return true;
}

bool LauncherRequests::OnProcessEnded(const wire::ProcessEnded& ended, int64_t now_us) {
  const NodeRecord* node = registration_.FindByUid(ended.uid);
  if (node == nullptr || node->fate != NodeFate::kLive) return true;
  presence_.MarkDead(node->incarnation);
  presence_.NoteOutOfMemory(node->incarnation, ended.out_of_memory);
  detection_.DetectDeaths(now_us);
  return journal_.ok();
}

bool LauncherRequests::OnAbort(const wire::AbortJob& abort) {
  if (!journal_.durable().over()) {
    DurableState next = journal_.Next();
    FailJob(next, abort.reason.empty() ? "aborted" : Printable(abort.reason, kMaxReasonBytes));
    if (!journal_.Commit(std::move(next))) return false;
  }
  return true;
}

}  // namespace cairn::scheduler
