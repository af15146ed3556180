// Nodes that come and go: Register, Leave, and what the launcher says about ranks and the job.
#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "scheduler/core/core.h"
#include "scheduler/core/reachable.h"

namespace cairn::scheduler {
namespace {

constexpr size_t kMaxReasonBytes = 4096;

// The numbers that users of ps-lite and MindSpore know: servers are even from 8, workers odd from 9.
uint32_t PsLiteNumber(const NodeRecord& node) {
  return (node.role == wire::Role::kServer ? 8 : 9) + 2 * node.rank;
}

std::string NameOf(const NodeRecord& node) {
  return (node.role == wire::Role::kServer ? "server " : "worker ") + std::to_string(node.rank);
}

}  // namespace

wire::Registered SchedulerCore::RegisteredFor(const NodeRecord& node) const {
  return {node.uid,  state().cluster_id, state().term, node.incarnation, node.rank, node.barrier_base,
          static_cast<uint32_t>(options_.heartbeat_us / 1000)};
}

void SchedulerCore::OnRegister(ConnId conn, const wire::Register& request, int64_t now_us) {
  if (auto known = by_uid_.find(request.uid); known != by_uid_.end())
    return AnswerKnown(conn, *durable_.FindNode(known->second), now_us);
  auto refuse = [&](Code code, std::string text) { RefuseNode(conn, Incarnation(0), code, std::move(text)); };
  if (Status status = CheckRegister(durable_, request); !status.ok())
    return refuse(status.code(), status.message());
  if (Status status = CheckReachable(request, network_.SameHost(conn)); !status.ok())
    return refuse(status.code(), status.message());
  if (state().phase == wire::Phase::kEnded)
    return refuse(Code::kJobFailed,
                  "the job has ended: start a new one, with a scheduler of its own (and another "
                  "state directory)");
  if (state().phase == wire::Phase::kFailed)
    return refuse(Code::kJobFailed, "the job has failed: " + state().failure);
  if (request.role == wire::Role::kServer)
    AdmitServer(conn, request, now_us);
  else
    AdmitWorker(conn, request, now_us);
}

// A repeated Register, or a late copy of one.
void SchedulerCore::AnswerKnown(ConnId conn, const NodeRecord& node, int64_t now_us) {
  if (node.fate == NodeFate::kLeft) return Send(conn, wire::LeaveReply{node.incarnation});
  if (node.fate == NodeFate::kRetired)
    return RefuseNode(conn, node.incarnation, Code::kRetired,
                      NameOf(node) + " was declared dead or replaced: restart this process");
  Bind(node.incarnation, conn, now_us);
  Send(conn, RegisteredFor(node));
  SendStateIfBehind(live_[node.incarnation], now_us);
}

void SchedulerCore::AdmitServer(ConnId conn, const wire::Register& request, int64_t now_us) {
  if (const wire::ServerInfo* old = FindServerAt(state(), request.endpoint)) {
    const wire::ServerInfo lost = *old;
    hearing_.MarkDead(lost.incarnation);
    LoseServer(lost, "another process has registered at its address, so it was restarted", now_us);
    if (!fatal_.ok()) return;
    if (durable_.over()) return Refuse(conn, Code::kJobFailed, "the job has failed: " + state().failure);
  }
  auto index = ChooseServerIndex(durable_, request);
  if (!index.ok()) return RefuseNode(conn, Incarnation(0), index.status().code(), index.status().message());
  Admit(conn, request, *index, 0, now_us);
}

void SchedulerCore::AdmitWorker(ConnId conn, const wire::Register& request, int64_t now_us) {
  auto rank = ChooseRank(durable_, request);
  if (!rank.ok()) return RefuseNode(conn, Incarnation(0), rank.status().code(), rank.status().message());
  // Where the barriers stand is known by the workers alone; after a restart they are asked first.
  uint32_t unheard = 0;
  const auto base = SmallestCount(Rank(*rank), &unheard);
  if (!base)
    return Refuse(conn, Code::kUnavailable,
                  "the scheduler has just started again and waits to hear of rank " +
                      std::to_string(unheard) + ": register again");
  Admit(conn, request, *rank, *base, now_us);
}

void SchedulerCore::Admit(ConnId conn, const wire::Register& request, uint32_t rank, uint64_t barrier_base,
                          int64_t now_us) {
  const wire::WorkerInfo* old =
      request.role == wire::Role::kWorker ? FindWorkerOfRank(state(), Rank(rank)) : nullptr;
  const Incarnation replaced = old != nullptr ? old->incarnation : Incarnation(0);
  DurableState next = Next();
  const Incarnation incarnation = AddNode(next, request, rank, barrier_base);
  if (request.role == wire::Role::kServer) ExpectJoined(next);
  if (CAIRN_BUG(kIncarnationNotLogged)) Send(conn, RegisteredFor(*next.FindNode(incarnation)));
  if (!Commit(std::move(next))) return;
  const NodeRecord& node = *durable_.FindNode(incarnation);
  by_uid_[node.uid] = incarnation;
  if (replaced != Incarnation(0))
    Retire(replaced, "a new process has registered with rank " + std::to_string(rank));
  Bind(incarnation, conn, now_us);
  Live& live = live_[incarnation];
  live.heard = true;
  live.barrier_count = barrier_base;
  log_("Assign rank=" + std::to_string(PsLiteNumber(node)) + " to node role=" +
       (node.role == wire::Role::kServer ? "server" : "worker") + ", ip=" + request.endpoint.host +
       ", port=" + std::to_string(request.endpoint.port) + " (" + NameOf(node) + ")");
  Send(conn, RegisteredFor(node));
}

void SchedulerCore::ForgetRequests(Incarnation incarnation) {
  std::erase_if(requests_, [&](const auto& entry) { return entry.first.first == incarnation; });
  std::erase_if(answered_, [&](const auto& entry) { return entry.first.first == incarnation; });
}

void SchedulerCore::Retire(Incarnation incarnation, const std::string& why) {
  ForgetRequests(incarnation);
  auto it = live_.find(incarnation);
  if (it == live_.end()) return;
  const ConnId conn = it->second.conn;
  live_.erase(it);
  hearing_.Forget(incarnation);
  if (conn == ConnId(0)) return;
  bound_.erase(conn);
  Refuse(conn, Code::kRetired, why + ": restart this process");
}

void SchedulerCore::OnLeave(ConnId conn, const wire::Leave& leave, int64_t now_us) {
  const NodeRecord* node = durable_.FindNode(leave.incarnation);
  auto refuse = [&](Code code, std::string text) {
    RefuseNode(conn, leave.incarnation, code, std::move(text));
  };
  if (node == nullptr) {
    if (leave.incarnation < state().next_incarnation)
      return refuse(Code::kRetired, "this worker was declared dead");
    return refuse(Code::kUnavailable, "this scheduler does not know the worker: register again");
  }
  if (node->role != wire::Role::kWorker)
    return refuse(Code::kInvalidArgument, "only workers leave so; servers say it in their heartbeats");
  if (node->fate == NodeFate::kRetired)
    return refuse(Code::kRetired, NameOf(*node) + " was declared dead or replaced");
  if (node->fate == NodeFate::kLeft) {
    Bind(leave.incarnation, conn, now_us);  // awaited again, until it has the answer
    return Send(conn, wire::LeaveReply{leave.incarnation});
  }
  if (durable_.over()) return refuse(Code::kJobFailed, "the job has failed: " + state().failure);
  const uint32_t rank = node->rank;
  DurableState next = Next();
  RemoveWorker(next, leave.incarnation, NodeFate::kLeft);
  if (!Commit(std::move(next))) return;
  log_("worker " + std::to_string(rank) + " is done");
  ForgetRequests(leave.incarnation);
  Bind(leave.incarnation, conn, now_us);
  Send(conn, wire::LeaveReply{leave.incarnation});
}

void SchedulerCore::OnGiveUp(ConnId conn, const wire::GiveUp& give_up, int64_t now_us) {
  const bool in_job = give_up.rank < state().expected_workers ||
                      durable_.joined_ranks.count(give_up.rank) > 0 ||
                      FindWorkerOfRank(state(), Rank(give_up.rank)) != nullptr;
  const bool done = std::binary_search(state().done_ranks.begin(), state().done_ranks.end(), give_up.rank);
  if (!in_job)
    return Refuse(conn, Code::kInvalidArgument, "this job has no rank " + std::to_string(give_up.rank));
  if (!done && !durable_.over() && durable_.given_up_ranks.count(give_up.rank) == 0) {
    DurableState next = Next();
    next.given_up_ranks.insert(give_up.rank);
    if (!Commit(std::move(next))) return;
    log_("rank " + std::to_string(give_up.rank) + " is given up");
  }
  Settle(now_us);
  Send(conn, wire::StatusReply{0, StatusJson(now_us)});
}

// From whoever started the process: what it held is not awaited any longer.
void SchedulerCore::OnProcessEnded(ConnId conn, const wire::ProcessEnded& ended, int64_t now_us) {
  auto known = by_uid_.find(ended.uid);
  const NodeRecord* node = known == by_uid_.end() ? nullptr : durable_.FindNode(known->second);
  if (node != nullptr && node->fate == NodeFate::kLive) {
    hearing_.MarkDead(node->incarnation);
    if (Live* live = FindLive(node->incarnation)) live->out_of_memory = ended.out_of_memory;
    DetectDeaths(now_us);
    if (!fatal_.ok()) return;
  }
  Settle(now_us);
  Send(conn, wire::StatusReply{0, StatusJson(now_us)});
}

void SchedulerCore::OnAbort(ConnId conn, const wire::AbortJob& abort, int64_t now_us) {
  if (!durable_.over()) {
    DurableState next = Next();
    FailJob(next, abort.reason.empty() ? "aborted" : Printable(abort.reason, kMaxReasonBytes));
    if (!Commit(std::move(next))) return;
  }
  Settle(now_us);
  Send(conn, wire::StatusReply{0, StatusJson(now_us)});
}

}  // namespace cairn::scheduler
