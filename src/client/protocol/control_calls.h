// Calls that the scheduler answers: tables, barriers, leaving. Each is repeated until answered and
// ends at its deadline at the latest.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cairn/status.h"
#include "client/links/scheduler_link.h"
#include "client/protocol/client_core.h"
#include "client/protocol/completions.h"
#include "wire/control.h"

namespace cairn::client {

class ControlCalls {
 public:
  ControlCalls(const ClientCoreOptions& options, SchedulerLink& link, Completions& completions)
      : options_(options), link_(link), completions_(completions) {}

  void CreateTable(const TableSpec& spec, int64_t deadline_us, ClientCore::TableDone done, int64_t now_us);
  void CreateTables(std::vector<TableSpec> specs, int64_t deadline_us, ClientCore::TablesDone done,
                    int64_t now_us);
  void DropTable(const std::string& name, int64_t deadline_us, ClientCore::Done done, int64_t now_us);
  void Barrier(int64_t deadline_us, ClientCore::Done done, int64_t now_us);
  void Leave(int64_t deadline_us, ClientCore::Done done, int64_t now_us);

  void OnReply(const wire::ControlMessage& message, int64_t now_us);
  // Sends what is due, ends what is answered or late. `drained`: nothing pushed is unacknowledged.
  void Settle(bool drained, int64_t now_us);
  void EndAll(const Status& why);

  bool leaving() const { return leave_.has_value(); }
  bool leave_sent() const { return leave_ && leave_->sent; }
  bool left() const { return left_; }
  // The scheduler has logged it: the call ends well.
  void OnLeft();
  // Others' calls could end a barrier; these wait for the scheduler. (Until a Leave is sent it waits for what
  // this worker has under way.)
  bool in_barrier() const { return !barriers_.empty(); }
  bool waits_for_scheduler() const { return !tables_.empty() || leave_sent(); }
  void EndBarriers(const Status& why);
  // Unless it is sent: then the scheduler may have logged it.
  void EndLeave(const Status& why);
  // What the oldest of them waits for, in words; empty if none has waited since `since_us`.
  std::string Describe(int64_t since_us, int64_t now_us) const;

 private:
  struct TableCall {
    wire::ControlMessage message;
    std::string what;  // "creating table \"w\""
    int64_t begun_us = 0, deadline_us = 0, send_us = 0;
    uint64_t connection = 0;  // on which it was sent
    std::optional<wire::TableReply> reply;
    ClientCore::TablesDone done;  // of a drop: with none
  };
  struct BarrierCall {
    uint64_t number = 0;
    int64_t begun_us = 0, deadline_us = 0;
    ClientCore::Done done;
  };
  struct LeaveCall {
    int64_t begun_us = 0, deadline_us = 0, send_us = 0;
    uint64_t connection = 0;
    bool sent = false;
    ClientCore::Done done;
    int64_t unheard_us = 0;  // since when the scheduler is gone, with the leave sent; 0: it is there
  };

  template <class Message>
  void AddTableCall(Message message, std::string what, int64_t deadline_us, ClientCore::TablesDone done,
                    int64_t now_us);
  // What an answered call has made, as the state has it.
  Result<std::vector<wire::TableInfo>> Made(const TableCall& call) const;
  bool Due(int64_t send_us, uint64_t connection, int64_t now_us) const;
  bool Abandoned(int64_t now_us);
  // True when it has ended.
  bool SettleTable(TableCall& call, int64_t now_us);
  void End(TableCall& call, Result<std::vector<wire::TableInfo>> result);
  void End(ClientCore::Done& done, Status status);
  Status Late(const std::string& what, int64_t now_us) const;

  const ClientCoreOptions& options_;
  SchedulerLink& link_;
  Completions& completions_;
  std::map<uint64_t, TableCall> tables_;  // by request number
  uint64_t next_request_ = 1;
  std::vector<BarrierCall> barriers_;  // in the order of their numbers
  std::set<uint64_t>
      left_barriers_;  // entered, and their calls have ended before they opened: the next are theirs
  std::optional<LeaveCall> leave_;
  bool left_ = false;
};

}  // namespace cairn::client
