// CreateTable and DropTable: carried out once, answered when every server holds the result.
#include <algorithm>
#include <utility>

#include "base/bounds.h"
#include "scheduler/core.h"

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
  if (it == requests_.end()) it = requests_.emplace(key, TableRequest{conn, std::move(message), {}}).first;
  it->second.conn = conn;  // the answer goes to where it was last asked from
  unsettled_ = true;
}

// Requires a running job with no view pending: then creation need not wait.
bool SchedulerCore::RunDeferred() {
  for (auto& [key, request] : requests_) {
    if (request.reply) continue;
    const StateVersion before = state().version;
    request.reply = Carry(key, request);
    if (!fatal_.ok()) return false;
    if (state().version != before) return true;
  }
  return false;
}

std::optional<wire::TableReply> SchedulerCore::Carry(const RequestKey& key, const TableRequest& request) {
  if (const TableOperation* done = FindOperation(durable_, key.first, key.second))
    return wire::TableReply{key.second, Code::kOk, "", done->table, done->version};
  if (const auto* create = std::get_if<wire::CreateTable>(&request.message)) return Create(key, create->spec);
  return Drop(key, std::get<wire::DropTable>(request.message).name);
}

wire::TableReply SchedulerCore::Create(const RequestKey& key, const TableSpec& spec) {
  wire::TableReply reply{key.second, Code::kOk, "", TableId(0), state().version};
  auto refuse = [&](Code code, std::string text) {
    reply.code = code;
    reply.text = std::move(text);
    return reply;
  };
  if (Status status = CheckSpec(spec, static_cast<uint32_t>(state().slots.size())); !status.ok()) return refuse(status.code(), status.message());
  if (const wire::TableInfo* there = state().FindTable(spec.name)) {
    const std::string difference = DescribeDifference(there->spec, spec);
    if (!difference.empty())
      return refuse(Code::kAlreadyExists, "table \"" + spec.name + "\" is already there with another " +
                                              difference +
                                              ": use the same spec, another name, or drop it first");
    reply.table = there->id;
    return reply;
  }
  if (Status status = CheckRoom(state(), spec); !status.ok()) return refuse(status.code(), status.message());
  if (Status status = CheckMemory(state(), spec, MemoryOfServers()); !status.ok()) {
    log_(status.message());
    return refuse(status.code(), status.message());
  }
  DurableState next = Next();
  reply.version = next.state.version;
  reply.table = AddTable(next, spec);
  RememberOperation(next, key.first, key.second, reply.table, options_.bounds.table_requests);
  if (Commit(std::move(next)))
    log_("table " + std::to_string(reply.table.value) + " \"" + spec.name + "\": " + Describe(spec));
  return reply;
}

std::vector<ServerMemory> SchedulerCore::MemoryOfServers() const {
  std::vector<ServerMemory> servers;
  for (const wire::ServerInfo& server : state().servers)
    if (const Live* live = FindLive(server.incarnation))
      servers.push_back({server.index, live->stats.memory, live->stats.dense_bytes});
  return servers;
}

wire::TableReply SchedulerCore::Drop(const RequestKey& key, const std::string& name) {
  wire::TableReply reply{key.second, Code::kOk, "", TableId(0), state().version};
  const wire::TableInfo* there = state().FindTable(name);
  if (there == nullptr) {
    // Several workers may drop the same table: it is gone, which is what each of them wants.
    const auto& gone = durable_.dropped_names;
    if (std::find(gone.begin(), gone.end(), name) != gone.end()) return reply;
    reply.code = Code::kNotFound;
    reply.text = "no table is named \"" + Printable(name, 255) + "\"";
    return reply;
  }
  DurableState next = Next();
  reply.version = next.state.version;
  reply.table = there->id;
  RemoveTable(next, reply.table);
  RememberOperation(next, key.first, key.second, reply.table, options_.bounds.table_requests);
  if (Commit(std::move(next)))
    log_("table " + std::to_string(reply.table.value) + " \"" + name + "\" is dropped");
  return reply;
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
