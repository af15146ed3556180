// CreateTable, CreateTables and DropTable: carried out once, answered when every server holds the result.
#include <algorithm>
#include <utility>

#include "base/bounds.h"
#include "scheduler/core/core.h"
#include "scheduler/rules/table_record.h"

namespace cairn::scheduler {
namespace {
// Beyond this a request is dropped; clients repeat.
constexpr size_t kMaxRequestsUnderWay = 4096;
}  // namespace

void SchedulerCore::OnTableRequest(ConnId conn, Incarnation incarnation, uint64_t request,
                                   wire::ControlMessage message) {
  // Numbers of requests are a worker's own, so an answer must not go to another worker: a request
  // counts only on a connection that its worker has been heard on. Workers repeat, and those that
  // are dead are told so when they say who they are.
  const auto speaker = bound_.find(conn);
  if (speaker == bound_.end() || speaker->second != incarnation) return;
  const NodeRecord* node = durable_.FindNode(incarnation);
  if (node == nullptr || node->fate != NodeFate::kLive || node->role != wire::Role::kWorker)
    return Send(conn, wire::TableReply{request,
                                       Code::kRetired,
                                       "only a live worker makes or drops tables, and this one is not",
                                       {},
                                       {}});
  const RequestKey key{incarnation, request};
  if (auto it = answered_.find(key); it != answered_.end()) return Send(conn, it->second);
  auto it = requests_.find(key);
  if (it == requests_.end() && requests_.size() >= kMaxRequestsUnderWay) return;
  if (it == requests_.end()) it = requests_.emplace(key, TableRequest{conn, std::move(message), {}, false}).first;
  it->second.conn = conn;  // the answer goes to where it was last asked from
  unsettled_ = true;
}

// Requires a running job with no view pending: then creation need not wait. What changes the state also
// waits until the servers have confirmed the record before: requests that come meanwhile share the next.
bool SchedulerCore::RunDeferred() {
  const bool unconfirmed = std::any_of(requests_.begin(), requests_.end(), [&](const auto& entry) {
    const auto& reply = entry.second.reply;
    return reply && reply->code == Code::kOk && !ServersHold(reply->version);
  });
  TableRecord record(durable_, options_.bounds.table_requests, MemoryOfServers());
  for (auto& [key, request] : requests_) {
    if (request.reply || (unconfirmed && request.waits)) continue;
    request.waits = unconfirmed && record.WouldChange(key.first, key.second, request.message);
    if (request.waits) continue;
    request.reply = record.Carry(key.first, key.second, request.message);
    if (request.reply->code == Code::kResourceExhausted) log_(request.reply->text);
  }
  if (!record.changed()) return false;
  if (!Commit(record.TakeNext())) return false;
  for (const std::string& line : record.lines()) log_(line);
  return true;
}

std::vector<ServerMemory> SchedulerCore::MemoryOfServers() const {
  std::vector<ServerMemory> servers;
  for (const wire::ServerInfo& server : state().servers)
    if (const Live* live = FindLive(server.incarnation))
      servers.push_back({server.index, live->stats.memory, live->stats.dense_bytes});
  return servers;
}

bool SchedulerCore::ServersHold(StateVersion version) const {
  return std::all_of(state().servers.begin(), state().servers.end(), [&](const wire::ServerInfo& server) {
    const Live* live = FindLive(server.incarnation);
    return live != nullptr && live->version >= version;
  });
}

void SchedulerCore::AnswerTables() {
  for (auto it = requests_.begin(); it != requests_.end();) {
    const TableRequest& request = it->second;
    if (durable_.over()) {
      const std::string text = state().phase == wire::Phase::kFailed ? state().failure : "the job has ended";
      Send(request.conn, wire::TableReply{it->first.second, Code::kJobFailed, text, {}, {}});
    } else if (request.reply && (request.reply->code != Code::kOk || ServersHold(request.reply->version))) {
      Send(request.conn, *request.reply);
      RememberAnswer(it->first, *request.reply);
    } else {
      ++it;
      continue;
    }
    it = requests_.erase(it);
  }
}

void SchedulerCore::RememberAnswer(const RequestKey& key, const wire::TableReply& reply) {
  answered_[key] = reply;
  auto first = answered_.lower_bound({key.first, 0});
  const auto last = answered_.lower_bound({key.first.Next(), 0});
  if (std::distance(first, last) <= static_cast<ptrdiff_t>(options_.bounds.table_answers)) return;
  CAIRN_AT_BOUND(kTableAnswers);
  answered_.erase(first);
}

}  // namespace cairn::scheduler
