#include "scheduler/core/registration.h"

#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/planted.h"
#include "scheduler/core/reachable.h"
#include "scheduler/rules/membership.h"

namespace cairn::scheduler {
namespace {

// The numbers that users of ps-lite and MindSpore know: servers are even from 8, workers odd from 9.
uint32_t PsLiteNumber(const NodeRecord& node) {
  return (node.role == wire::Role::kServer ? 8 : 9) + 2 * node.rank;
}

std::string NameOf(const NodeRecord& node) {
  return (node.role == wire::Role::kServer ? "server " : "worker ") + std::to_string(node.rank);
}

}  // namespace

wire::Registered Registration::RegisteredFor(const NodeRecord& node) const {
  return {node.uid,
          journal_.state().cluster_id,
          journal_.state().term,
          node.incarnation,
          node.rank,
          node.barrier_base,
          static_cast<uint32_t>(heartbeat_us_ / 1000)};
}

void Registration::Restore(int64_t now_us) {
  for (const NodeRecord& node : journal_.durable().nodes) {
    by_uid_[node.uid] = node.incarnation;
    if (node.fate != NodeFate::kLive) continue;
    connections_.Expect(node.incarnation);
    presence_.Expect(node.incarnation, now_us);
  }
}

const NodeRecord* Registration::FindByUid(uint64_t uid) const {
  const auto known = by_uid_.find(uid);
  return known == by_uid_.end() ? nullptr : journal_.durable().FindNode(known->second);
}

void Registration::Hear(Incarnation node, ConnId conn, int64_t now_us) {
  presence_.Hear(node, connections_.SameHost(conn), now_us);
  connections_.Bind(node, conn, now_us);
}

bool Registration::Recognise(ConnId conn, const wire::Heartbeat& heartbeat, int64_t now_us) {
  const NodeRecord* node = FindByUid(heartbeat.uid);
  if (node == nullptr || node->incarnation != heartbeat.incarnation || node->fate != NodeFate::kLive) {
    RefuseHeartbeat(conn, heartbeat, node);
    return false;
  }
  Hear(node->incarnation, conn, now_us);
  return true;
}

void Registration::RefuseHeartbeat(ConnId conn, const wire::Heartbeat& heartbeat, const NodeRecord* node) {
  if (node != nullptr && node->incarnation == heartbeat.incarnation) {
    if (node->fate == NodeFate::kLeft) return connections_.Send(conn, wire::LeaveReply{node->incarnation});
    return connections_.RefuseNode(conn, heartbeat.incarnation, Code::kRetired,
                                   "this node was declared dead or replaced: restart its process");
  }
  const NodeRecord* owner = journal_.durable().FindNode(heartbeat.incarnation);
  const bool listed = owner != nullptr && owner->fate == NodeFate::kLive;
  if (!listed && heartbeat.incarnation < journal_.state().next_incarnation)
    return connections_.RefuseNode(conn, heartbeat.incarnation, Code::kRetired,
                                   "this node was declared dead or replaced: restart its process");
  connections_.RefuseNode(conn, heartbeat.incarnation, Code::kUnavailable,
                          "this scheduler does not know the node: register again");
}

void Registration::OnRegister(ConnId conn, const wire::Register& request, int64_t now_us) {
  if (const NodeRecord* known = FindByUid(request.uid)) return AnswerKnown(conn, *known, now_us);
  auto refuse = [&](Code code, std::string text) {
    connections_.RefuseNode(conn, Incarnation(0), code, std::move(text));
  };
  if (Status status = CheckRegister(journal_.durable(), request); !status.ok())
    return refuse(status.code(), status.message());
  if (Status status = CheckReachable(request, connections_.SameHost(conn)); !status.ok())
    return refuse(status.code(), status.message());
  if (journal_.state().phase == wire::Phase::kEnded)
    return refuse(Code::kJobFailed,
                  "the job has ended: start a new one, with a scheduler of its own (and another "
                  "state directory)");
  if (journal_.state().phase == wire::Phase::kFailed)
    return refuse(Code::kJobFailed, "the job has failed: " + journal_.state().failure);
  if (request.role == wire::Role::kServer)
    AdmitServer(conn, request, now_us);
  else
    AdmitWorker(conn, request, now_us);
}

// A repeated Register, or a late copy of one.
void Registration::AnswerKnown(ConnId conn, const NodeRecord& node, int64_t now_us) {
  if (node.fate == NodeFate::kLeft) return connections_.Send(conn, wire::LeaveReply{node.incarnation});
  if (node.fate == NodeFate::kRetired)
    return connections_.RefuseNode(conn, node.incarnation, Code::kRetired,
                                   NameOf(node) + " was declared dead or replaced: restart this process");
  Hear(node.incarnation, conn, now_us);
  connections_.Send(conn, RegisteredFor(node));
  teller_.SendIfBehind(node.incarnation, now_us);
}

// Another scheduler may lead by now, under which there are places: a newcomer, who has not heard of any term,
// can't tell.
void Registration::RefuseNewcomer(ConnId conn, const Status& why) {
  const Status newest = why.code() == Code::kUnavailable ? Status::Ok() : journal_.Confirm();
  if (!journal_.ok()) return;
  const Status& told = newest.ok() ? why : newest;
  connections_.RefuseNode(conn, Incarnation(0), told.code(), std::string(told.message()));
}

void Registration::AdmitServer(ConnId conn, const wire::Register& request, int64_t now_us) {
  if (const wire::ServerInfo* old = FindServerAt(journal_.state(), request.endpoint)) {
    failover_.OnReplaced(wire::ServerInfo(*old), now_us);
    if (!journal_.ok()) return;
    if (journal_.durable().over())
      return connections_.Refuse(conn, Code::kJobFailed, "the job has failed: " + journal_.state().failure);
  }
  auto index = ChooseServerIndex(journal_.durable(), request);
  if (!index.ok()) return RefuseNewcomer(conn, index.status());
  Admit(conn, request, *index, 0, now_us);
}

void Registration::AdmitWorker(ConnId conn, const wire::Register& request, int64_t now_us) {
  auto rank = ChooseRank(journal_.durable(), request);
  if (!rank.ok()) return RefuseNewcomer(conn, rank.status());
  // Where the barriers stand is known by the workers alone; after a restart they are asked first.
  uint32_t unheard = 0;
  const auto base = barriers_.SmallestCount(Rank(*rank), &unheard);
  if (!base)
    return connections_.Refuse(conn, Code::kUnavailable,
                               "the scheduler has just started again and waits to hear of rank " +
                                   std::to_string(unheard) + ": register again");
  Admit(conn, request, *rank, *base, now_us);
}

void Registration::Admit(ConnId conn, const wire::Register& request, uint32_t rank, uint64_t barrier_base,
                         int64_t now_us) {
  const wire::WorkerInfo* old =
      request.role == wire::Role::kWorker ? FindWorkerOfRank(journal_.state(), Rank(rank)) : nullptr;
  const Incarnation replaced = old != nullptr ? old->incarnation : Incarnation(0);
  DurableState next = journal_.Next();
  const Incarnation incarnation = AddNode(next, request, rank, barrier_base);
  if (request.role == wire::Role::kServer) scale_.ExpectJoined(next);
  if (CAIRN_BUG(kIncarnationNotLogged)) connections_.Send(conn, RegisteredFor(*next.FindNode(incarnation)));
  if (!journal_.Commit(std::move(next))) return;
  const NodeRecord& node = *journal_.durable().FindNode(incarnation);
  CAIRN_CHECK(!by_uid_.contains(node.uid) && node.fate == NodeFate::kLive);
  by_uid_[node.uid] = incarnation;
  if (replaced != Incarnation(0))
    connections_.Retire(replaced, "a new process has registered with rank " + std::to_string(rank));
  Hear(incarnation, conn, now_us);
  barriers_.Begin(incarnation, barrier_base);
  log_("Assign rank=" + std::to_string(PsLiteNumber(node)) + " to node role=" +
       (node.role == wire::Role::kServer ? "server" : "worker") + ", ip=" + request.endpoint.host +
       ", port=" + std::to_string(request.endpoint.port) + " (" + NameOf(node) + ")");
  connections_.Send(conn, RegisteredFor(node));
}

void Registration::OnLeave(ConnId conn, const wire::Leave& leave, int64_t now_us) {
  const NodeRecord* node = journal_.durable().FindNode(leave.incarnation);
  auto refuse = [&](Code code, std::string text) {
    connections_.RefuseNode(conn, leave.incarnation, code, std::move(text));
  };
  if (node == nullptr) {
    if (leave.incarnation < journal_.state().next_incarnation)
      return refuse(Code::kRetired, "this worker was declared dead");
    return refuse(Code::kUnavailable, "this scheduler does not know the worker: register again");
  }
  if (node->role != wire::Role::kWorker)
    return refuse(Code::kInvalidArgument, "only workers leave so; servers say it in their heartbeats");
  if (node->fate == NodeFate::kRetired)
    return refuse(Code::kRetired, NameOf(*node) + " was declared dead or replaced");
  if (node->fate == NodeFate::kLeft) {
    Hear(leave.incarnation, conn, now_us);  // awaited again, until it has the answer
    return connections_.Send(conn, wire::LeaveReply{leave.incarnation});
  }
  if (journal_.durable().over())
    return refuse(Code::kJobFailed, "the job has failed: " + journal_.state().failure);
  const uint32_t rank = node->rank;
  DurableState next = journal_.Next();
  RemoveWorker(next, leave.incarnation, NodeFate::kLeft);
  if (!journal_.Commit(std::move(next))) return;
  log_("worker " + std::to_string(rank) + " is done");
  tables_.Forget(leave.incarnation);
  Hear(leave.incarnation, conn, now_us);
  connections_.Send(conn, wire::LeaveReply{leave.incarnation});
}

}  // namespace cairn::scheduler
