#include "scheduler/rules/membership.h"

#include <algorithm>

#include "base/check.h"
#include "scheduler/rules/durable.h"
#include "scheduler/rules/user_text.h"
#include "scheduler/rules/views.h"

namespace cairn::scheduler {
namespace {

constexpr size_t kMaxHostBytes = 255;

bool Contains(const std::vector<uint32_t>& sorted, uint32_t value) {
  return std::binary_search(sorted.begin(), sorted.end(), value);
}

Status CheckServer(const wire::Register& request) {
  if (request.threads == 0 || request.threads > kMaxServerThreads)
    return {Code::kInvalidArgument, "a server has 1 to " + std::to_string(kMaxServerThreads) +
                                        " threads, not " + std::to_string(request.threads)};
  if (request.endpoint.host.empty() || request.endpoint.port == 0)
    return {Code::kInvalidArgument, "a server must say where workers reach it (host and port)"};
  return Status::Ok();
}

Status OutOfRange(int32_t wanted, uint32_t end, const std::string& what) {
  return {Code::kInvalidArgument, what + " " + std::to_string(wanted) + " is outside 0.." +
                                      std::to_string(end - 1) +
                                      ": give one in that range, or none to have it chosen"};
}

}  // namespace

Status CheckRegister(const DurableState& d, const wire::Register& request) {
  if (request.protocol_min > wire::kProtocolVersion || request.protocol_max < wire::kProtocolVersion)
    return {Code::kProtocol, "this scheduler speaks protocol " + std::to_string(wire::kProtocolVersion) +
                                 ", the node " + std::to_string(request.protocol_min) + " to " +
                                 std::to_string(request.protocol_max) +
                                 ": install the same version of cairn on both"};
  if (!request.cluster_id.empty() && request.cluster_id != d.state.cluster_id)
    return {Code::kProtocol, "this is cluster " + d.state.cluster_id + ", not " +
                                 Printable(request.cluster_id, kMaxHostBytes) +
                                 ": check the scheduler's address and the cluster id; a scheduler "
                                 "that is started again without its log (--state-dir) is a new cluster"};
  if (request.role != wire::Role::kServer && request.role != wire::Role::kWorker)
    return {Code::kInvalidArgument, "only servers and workers register"};
  if (request.uid == 0) return {Code::kInvalidArgument, "a registration needs a uid that is not 0"};
  if (request.endpoint.host.size() > kMaxHostBytes || !IsPrintable(request.endpoint.host))
    return {Code::kInvalidArgument, "the host name is too long or has control characters"};
  if (request.wanted_rank < -1)
    return {Code::kInvalidArgument, "the wanted rank is " + std::to_string(request.wanted_rank) +
                                        ": give one from 0, or -1 to have it chosen"};
  if (d.nodes.size() >= kMaxNodes)
    return {Code::kResourceExhausted, "this job has seen " + std::to_string(kMaxNodes) +
                                          " registrations, which is the limit: start it anew"};
  return request.role == wire::Role::kServer ? CheckServer(request) : Status::Ok();
}

const wire::ServerInfo* FindServerAt(const wire::ClusterState& state, const wire::Endpoint& endpoint) {
  for (const wire::ServerInfo& server : state.servers)
    if (server.endpoint == endpoint) return &server;
  return nullptr;
}

const wire::WorkerInfo* FindWorkerOfRank(const wire::ClusterState& state, Rank rank) {
  auto at = std::lower_bound(state.workers.begin(), state.workers.end(), rank,
                             [](const wire::WorkerInfo& worker, Rank r) { return worker.rank < r; });
  return at != state.workers.end() && at->rank == rank ? &*at : nullptr;
}

// A job that is running takes any server: the index is only a name, and whoever comes back while the
// old one is not yet known to be dead gets another one.
static Result<uint32_t> ChooseLateServerIndex(const DurableState& d, const wire::Register& request) {
  auto is_free = [&](uint32_t index) { return d.state.FindServer(index) == nullptr; };
  if (request.wanted_rank >= 0 && request.wanted_rank < wire::kNoServer &&
      is_free(static_cast<uint32_t>(request.wanted_rank)))
    return static_cast<uint32_t>(request.wanted_rank);
  for (uint32_t index = 0; index < wire::kNoServer; ++index)
    if (is_free(index)) return index;
  return Status(Code::kResourceExhausted, "this job has 65535 servers, which is the limit");
}

Result<uint32_t> ChooseServerIndex(const DurableState& d, const wire::Register& request) {
  if (d.running()) return ChooseLateServerIndex(d, request);
  const uint32_t expected = d.state.expected_servers;
  const std::vector<uint32_t> missing = MissingServers(d);
  if (missing.empty())
    return Status(Code::kInvalidArgument,
                  "this job expects " + Count(expected, "server") +
                      ", and all are there: start fewer, or the scheduler with a larger number");
  if (request.wanted_rank < 0) return missing.front();
  const auto wanted = static_cast<uint32_t>(request.wanted_rank);
  if (wanted >= expected) return OutOfRange(request.wanted_rank, expected, "server");
  if (Contains(missing, wanted)) return wanted;
  for (const wire::ServerInfo& server : d.state.servers)
    if (server.index == wanted)
      return Status(Code::kInvalidArgument, "server " + std::to_string(wanted) + " is already there, at " +
                                                ToString(server.endpoint) + ": give another number, or none");
  return Status(Code::kInternal, "server " + std::to_string(wanted) + " is neither missing nor there");
}

Result<uint32_t> ChooseRank(const DurableState& d, const wire::Register& request) {
  const wire::ClusterState& state = d.state;
  if (request.wanted_rank >= 0) {
    const auto wanted = static_cast<uint32_t>(request.wanted_rank);
    // More workers than the job began with may join, so only the hard limit counts.
    if (wanted >= kMaxRanks) return OutOfRange(request.wanted_rank, kMaxRanks, "rank");
    return wanted;
  }
  for (uint32_t rank = 0; rank < kMaxRanks; ++rank) {
    if (FindWorkerOfRank(state, Rank(rank)) != nullptr || Contains(state.done_ranks, rank)) continue;
    if (d.given_up_ranks.contains(rank)) continue;
    // It may stand in for one of those that the start waits for, of which nobody knows yet that it has died:
    // with a rank beyond theirs it would wait for that one itself, for ever.
    if (d.forming() && rank >= state.expected_workers)
      return Status(
          Code::kUnavailable,
          "the job has not begun, and it has the " + Count(state.expected_workers, "worker") +
              " that it begins with: this one joins when it has begun, or when one of them has died");
    return rank;
  }
  return Status(Code::kResourceExhausted, "every one of " + std::to_string(kMaxRanks) + " ranks is taken");
}

Incarnation AddNode(DurableState& d, const wire::Register& request, uint32_t rank, uint64_t barrier_base) {
  wire::ClusterState& state = d.state;
  const Incarnation incarnation = state.next_incarnation;
  if (request.role == wire::Role::kServer) {
    CAIRN_CHECK(state.FindServer(rank) == nullptr);
    auto at = std::find_if(state.servers.begin(), state.servers.end(),
                           [&](const wire::ServerInfo& server) { return server.index > rank; });
    state.servers.insert(at, {rank, incarnation, request.endpoint, request.threads, /*leaving=*/false});
  } else {
    if (const wire::WorkerInfo* old = FindWorkerOfRank(state, Rank(rank)))
      RemoveWorker(d, old->incarnation, NodeFate::kRetired);
    auto at = std::find_if(state.workers.begin(), state.workers.end(),
                           [&](const wire::WorkerInfo& worker) { return worker.rank.value > rank; });
    state.workers.insert(at, {Rank(rank), incarnation, ViewNumber(0), request.endpoint});
    std::erase(state.done_ranks, rank);
    d.given_up_ranks.erase(rank);
  }
  CAIRN_CHECK(d.nodes.empty() || d.nodes.back().incarnation < incarnation);
  d.nodes.push_back({request.uid, incarnation, request.role, NodeFate::kLive, rank, barrier_base});
  state.next_incarnation = incarnation.Next();
  return incarnation;
}

void RemoveWorker(DurableState& d, Incarnation incarnation, NodeFate fate) {
  wire::ClusterState& state = d.state;
  NodeRecord* node = d.FindNode(incarnation);
  CAIRN_CHECK(node != nullptr && node->fate == NodeFate::kLive && fate != NodeFate::kLive);
  node->fate = fate;
  std::erase_if(state.workers,
                [&](const wire::WorkerInfo& worker) { return worker.incarnation == incarnation; });
  std::erase_if(d.operations,
                [&](const TableOperation& operation) { return operation.incarnation == incarnation; });
  // Done stays done, whatever becomes of a process that came back for the rank.
  const bool done = std::any_of(d.nodes.begin(), d.nodes.end(), [&](const NodeRecord& other) {
    return other.role == wire::Role::kWorker && other.rank == node->rank && other.fate == NodeFate::kLeft;
  });
  if (done) {
    d.given_up_ranks.erase(node->rank);
    auto at = std::lower_bound(state.done_ranks.begin(), state.done_ranks.end(), node->rank);
    if (at == state.done_ranks.end() || *at != node->rank) state.done_ranks.insert(at, node->rank);
  }
}

}  // namespace cairn::scheduler
