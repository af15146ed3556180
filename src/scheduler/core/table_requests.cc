#include "scheduler/core/table_requests.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "base/bounds.h"
#include "base/check.h"
#include "scheduler/rules/table_record.h"

namespace cairn::scheduler {
namespace {
// Beyond this a request is dropped; clients repeat.
constexpr size_t kMaxRequestsUnderWay = 4096;
}  // namespace

bool TableRequests::OnRequest(ConnId conn, Incarnation worker, uint64_t request,
                              const wire::ControlMessage& message) {
  // Numbers of requests are a worker's own, so an answer must not go to another worker: a request
  // counts only on a connection that its worker has been heard on. Workers repeat, and those that
  // are dead are told so when they say who they are.
  if (connections_.SpeakerOn(conn) != worker) return false;
  const NodeRecord* node = journal_.durable().FindNode(worker);
  if (node == nullptr || node->fate != NodeFate::kLive || node->role != wire::Role::kWorker) {
    connections_.Send(conn, wire::TableReply{request,
                                             Code::kRetired,
                                             "only a live worker makes or drops tables, and this one is not",
                                             {},
                                             {}});
    return false;
  }
  const Key key{worker, request};
  if (auto it = answered_.find(key); it != answered_.end()) {
    connections_.Send(conn, it->second);
    return false;
  }
  auto it = requests_.find(key);
  if (it == requests_.end() && requests_.size() >= kMaxRequestsUnderWay) return false;
  if (it == requests_.end()) it = requests_.emplace(key, Request{conn, message, {}, false}).first;
  it->second.conn = conn;  // the answer goes to where it was last asked from
  return true;
}

bool TableRequests::OnDisconnect(ConnId conn) {
  return std::erase_if(requests_, [&](const auto& entry) { return entry.second.conn == conn; }) > 0;
}

void TableRequests::Forget(Incarnation worker) {
  std::erase_if(requests_, [&](const auto& entry) { return entry.first.first == worker; });
  std::erase_if(answered_, [&](const auto& entry) { return entry.first.first == worker; });
}

// What changes the state also waits until the servers have confirmed the record before: requests that come
// meanwhile share the next.
bool TableRequests::CarryOut() {
  CAIRN_CHECK(journal_.durable().running() && journal_.state().pending_view == ViewNumber(0));
  const bool unconfirmed = std::any_of(requests_.begin(), requests_.end(), [&](const auto& entry) {
    const auto& reply = entry.second.reply;
    return reply && reply->code == Code::kOk && !teller_.ServersHold(reply->version);
  });
  TableRecord record(journal_.durable(), options_.remembered, loads_.MemoryOfServers(journal_.state()));
  for (auto& [key, request] : requests_) {
    if (request.reply || (unconfirmed && request.waits)) continue;
    request.waits = unconfirmed && record.WouldChange(key.first, key.second, request.message);
    if (request.waits) continue;
    request.reply = record.Carry(key.first, key.second, request.message);
    if (request.reply->code == Code::kResourceExhausted) log_(request.reply->text);
  }
  if (!record.changed()) return false;
  if (!journal_.Commit(record.TakeNext())) return false;
  for (const std::string& line : record.lines()) log_(line);
  return true;
}

void TableRequests::Answer() {
  const wire::ClusterState& state = journal_.state();
  for (auto it = requests_.begin(); it != requests_.end();) {
    const Request& request = it->second;
    if (journal_.durable().over()) {
      const std::string text = state.phase == wire::Phase::kFailed ? state.failure : "the job has ended";
      connections_.Send(request.conn, wire::TableReply{it->first.second, Code::kJobFailed, text, {}, {}});
    } else if (request.reply &&
               (request.reply->code != Code::kOk || teller_.ServersHold(request.reply->version))) {
      CAIRN_CHECK(request.reply->version <= state.version);
      connections_.Send(request.conn, *request.reply);
      Remember(it->first, *request.reply);
    } else {
      ++it;
      continue;
    }
    it = requests_.erase(it);
  }
}

void TableRequests::Remember(const Key& key, const wire::TableReply& reply) {
  answered_[key] = reply;
  auto first = answered_.lower_bound({key.first, 0});
  const auto last = answered_.lower_bound({key.first.Next(), 0});
  if (std::distance(first, last) <= static_cast<ptrdiff_t>(options_.answers)) return;
  CAIRN_AT_BOUND(kTableAnswers);
  answered_.erase(first);
}

}  // namespace cairn::scheduler
