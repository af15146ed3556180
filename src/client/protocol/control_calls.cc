#include "client/protocol/control_calls.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <utility>
#include <variant>

namespace cairn::client {
namespace {
// A scheduler that is only restarted comes back sooner.
constexpr int64_t kAbandonedAfterUs = 60'000'000;

// A handle of the one can be used as one of the other.
bool SameShape(const TableSpec& a, const TableSpec& b) {
  return a.kind == b.kind && a.element == b.element && a.mode == b.mode && a.size == b.size && a.dim == b.dim;
}
}  // namespace

template <class Message>
void ControlCalls::AddTableCall(Message message, std::string what, int64_t deadline_us,
                                ClientCore::TablesDone done, int64_t now_us) {
  const uint64_t request = next_request_++;
  message.request = request;
  TableCall call;
  call.message = std::move(message);
  call.what = std::move(what);
  call.begun_us = call.send_us = now_us;
  call.deadline_us = deadline_us;
  call.done = std::move(done);
  tables_.emplace(request, std::move(call));
}

void ControlCalls::CreateTable(const TableSpec& spec, int64_t deadline_us, ClientCore::TableDone done,
                               int64_t now_us) {
  wire::CreateTable message;
  message.spec = spec;
  auto ended = [done = std::move(done)](Result<std::vector<wire::TableInfo>> made) {
    done(made.ok() ? Result<wire::TableInfo>(made->front()) : made.status());
  };
  AddTableCall(std::move(message), "creating table \"" + spec.name + "\"", deadline_us, std::move(ended),
               now_us);
}

void ControlCalls::CreateTables(std::vector<TableSpec> specs, int64_t deadline_us,
                                ClientCore::TablesDone done, int64_t now_us) {
  wire::CreateTables message;
  const std::string what = "creating " + std::to_string(specs.size()) + " tables (\"" + specs.front().name +
                           "\" to \"" + specs.back().name + "\")";
  message.specs = std::move(specs);
  AddTableCall(std::move(message), what, deadline_us, std::move(done), now_us);
}

void ControlCalls::DropTable(const std::string& name, int64_t deadline_us, ClientCore::Done done,
                             int64_t now_us) {
  wire::DropTable message;
  message.name = name;
  auto ended = [done = std::move(done)](const Result<std::vector<wire::TableInfo>>& result) {
    done(result.ok() ? Status::Ok() : result.status());
  };
  AddTableCall(std::move(message), "dropping table \"" + name + "\"", deadline_us, std::move(ended), now_us);
}

void ControlCalls::Barrier(int64_t deadline_us, ClientCore::Done done, int64_t now_us) {
  uint64_t number = 0;
  if (left_barriers_.empty()) {
    number = link_.EnterBarrier(now_us);
  } else {
    number = left_barriers_.extract(left_barriers_.begin()).value();
  }
  const auto later = [&](const BarrierCall& call) { return call.number > number; };
  barriers_.insert(std::find_if(barriers_.begin(), barriers_.end(), later),
                   {number, now_us, deadline_us, std::move(done)});
}

void ControlCalls::Leave(int64_t deadline_us, ClientCore::Done done, int64_t now_us) {
  if (leave_ && leave_->done)
    return End(done, {Code::kInvalidArgument, "this worker is leaving the job already"});
  if (leave_) {  // it was sent, and its call ended without an answer: waited for again
    leave_->done = std::move(done);
    leave_->deadline_us = deadline_us;
    leave_->unheard_us = 0;
    return;
  }
  leave_ = LeaveCall{now_us, deadline_us, now_us, 0, false, std::move(done), 0};
}

void ControlCalls::OnReply(const wire::ControlMessage& message, int64_t now_us) {
  if (auto* reply = std::get_if<wire::TableReply>(&message)) {
    auto it = tables_.find(reply->request);
    if (it == tables_.end() || it->second.reply) return;
    if (reply->code == Code::kUnavailable) return;  // the timer asks again
    if (reply->code != Code::kOk) {
      End(it->second, Status(reply->code, reply->text));
      tables_.erase(it);
      return;
    }
    it->second.reply = *reply;
    if (link_.state()->version < reply->version) link_.Heartbeat(now_us);  // it is answered with the state
  } else if (auto* refusal = std::get_if<wire::Refusal>(&message)) {
    auto it = tables_.find(refusal->request);
    if (it == tables_.end() || refusal->code == Code::kUnavailable) return;
    End(it->second, Status(refusal->code == Code::kOk ? Code::kInternal : refusal->code, refusal->text));
    tables_.erase(it);
  } else if (auto* leave = std::get_if<wire::LeaveReply>(&message)) {
    if (leave_sent() && leave->incarnation == link_.incarnation()) OnLeft();
  }
}

bool ControlCalls::Due(int64_t send_us, uint64_t connection, int64_t now_us) const {
  if (!link_.connected() || !link_.registered()) return false;
  return now_us >= send_us || connection != link_.connection_number();
}

Result<std::vector<wire::TableInfo>> ControlCalls::Made(const TableCall& call) const {
  std::vector<wire::TableInfo> made;
  const auto dropped = [&](const std::string& name) {
    return Status(Code::kNotFound, call.what + ": table \"" + name + "\" was dropped again at once");
  };
  if (const auto* one = std::get_if<wire::CreateTable>(&call.message)) {
    const wire::TableInfo* info = link_.state()->FindTable(call.reply->table);
    if (info == nullptr) return dropped(one->spec.name);
    made.push_back(*info);
  } else if (const auto* many = std::get_if<wire::CreateTables>(&call.message)) {
    std::unordered_map<std::string, const wire::TableInfo*> by_name;
    for (const wire::TableInfo& info : link_.state()->tables) by_name.emplace(info.spec.name, &info);
    for (const TableSpec& spec : many->specs) {
      const auto it = by_name.find(spec.name);
      if (it == by_name.end() || !SameShape(it->second->spec, spec)) return dropped(spec.name);
      made.push_back(*it->second);
    }
  }
  return made;
}

bool ControlCalls::SettleTable(TableCall& call, int64_t now_us) {
  if (call.reply && link_.state()->version >= call.reply->version) {
    End(call, Made(call));
    return true;
  }
  if (now_us >= call.deadline_us) {
    End(call, Late(call.what, now_us));
    return true;
  }
  if (!call.reply && Due(call.send_us, call.connection, now_us)) {
    call.send_us = now_us + options_.heartbeat_us;
    call.connection = link_.connection_number();
    if (auto* create = std::get_if<wire::CreateTable>(&call.message))
      create->incarnation = link_.incarnation();
    if (auto* many = std::get_if<wire::CreateTables>(&call.message)) many->incarnation = link_.incarnation();
    if (auto* drop = std::get_if<wire::DropTable>(&call.message)) drop->incarnation = link_.incarnation();
    link_.Send(call.message);
  }
  return false;
}

void ControlCalls::Settle(bool drained, int64_t now_us) {
  for (auto it = tables_.begin(); it != tables_.end();) {
    it = SettleTable(it->second, now_us) ? tables_.erase(it) : std::next(it);
  }
  std::erase_if(barriers_, [&](BarrierCall& call) {
    const bool open = link_.BarrierOpen(call.number);
    if (open) End(call.done, Status::Ok());
    if (!open && now_us >= call.deadline_us) {
      left_barriers_.insert(call.number);
      End(call.done, Late("barrier " + std::to_string(call.number), now_us));
    }
    return open || now_us >= call.deadline_us;
  });
  if (!leave_) return;
  if (leave_->done && now_us >= leave_->deadline_us) {
    const bool sent = leave_->sent;
    End(leave_->done,
        sent ? Late("leaving the job", now_us)
             : Status(Code::kDeadlineExceeded,
                      "leaving the job was not finished in time: not everything is acknowledged"));
    if (!sent) leave_.reset();  // nothing has happened: it may be tried again
    return;
  }
  if (Abandoned(now_us)) {
    return End(leave_->done,
               {Code::kOutcomeUnknown,
                "the scheduler can't be told that this worker leaves: it has been away for a minute. "
                "Everything that was pushed is acknowledged"});
  }
  if (drained && Due(leave_->send_us, leave_->connection, now_us)) {
    leave_->sent = true;
    leave_->send_us = now_us + options_.heartbeat_us;
    leave_->connection = link_.connection_number();
    link_.StopHeartbeats();
    link_.Send(wire::Leave{link_.incarnation()});
  }
}

// The last worker's answer may be lost with the scheduler, which ends with the job: nobody is left
// who could repeat it.
bool ControlCalls::Abandoned(int64_t now_us) {
  if (!leave_->sent || !leave_->done || link_.connected()) {
    leave_->unheard_us = 0;
    return false;
  }
  if (leave_->unheard_us == 0) leave_->unheard_us = now_us;
  return now_us - leave_->unheard_us >= kAbandonedAfterUs;
}

void ControlCalls::OnLeft() {
  left_ = true;
  if (leave_ && leave_->done) End(leave_->done, Status::Ok());
  leave_.reset();
}

void ControlCalls::End(TableCall& call, Result<std::vector<wire::TableInfo>> result) {
  completions_.Add([done = std::move(call.done), result = std::move(result)] { done(result); });
}

void ControlCalls::End(ClientCore::Done& done, Status status) {
  if (!done) return;
  completions_.Add([done = std::move(done), status = std::move(status)] { done(status); });
  done = nullptr;
}

void ControlCalls::EndBarriers(const Status& why) {
  for (BarrierCall& call : barriers_) {
    left_barriers_.insert(call.number);
    End(call.done, why);
  }
  barriers_.clear();
}

void ControlCalls::EndLeave(const Status& why) {
  if (!leave_ || leave_->sent) return;
  End(leave_->done, why);
  leave_.reset();  // nothing has happened: it may be tried again
}

void ControlCalls::EndAll(const Status& why) {
  for (auto& [request, call] : tables_) End(call, why);
  tables_.clear();
  EndBarriers(why);
  if (leave_) End(leave_->done, why);
  leave_.reset();
}

Status ControlCalls::Late(const std::string& what, int64_t now_us) const {
  const std::string awaiting = link_.Awaiting(now_us);
  return {Code::kDeadlineExceeded, what + " was not finished in time: " +
                                       (awaiting.empty() ? "the scheduler has not answered" : awaiting)};
}

std::string ControlCalls::Describe(int64_t since_us, int64_t now_us) const {
  const std::string awaiting = link_.Awaiting(now_us);
  const auto with = [&](const std::string& what) { return awaiting.empty() ? what : what + ": " + awaiting; };
  if (!barriers_.empty() && barriers_.front().begun_us <= since_us) {
    return with("waits at barrier " + std::to_string(barriers_.front().number));
  }
  for (const auto& [request, call] : tables_) {
    if (call.begun_us <= since_us) return with("waits for " + call.what);
  }
  if (leave_ && leave_->begun_us <= since_us) return with("waits to leave the job");
  return "";
}

}  // namespace cairn::client
