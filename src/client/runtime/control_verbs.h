// The caller's side of what the scheduler answers, and of questions to the core: each waits for its end,
// but for a barrier that is begun. Any thread but the loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cairn/client.h"
#include "cairn/status.h"
#include "client/protocol/client_core.h"
#include "client/protocol/user_waits.h"
#include "client/runtime/hand_over.h"
#include "client/runtime/loop_side.h"
#include "wire/cluster_state.h"

namespace cairn {

// When a call of `timeout_ms` ends at the latest; 0: the client's call_timeout_ms.
int64_t DeadlineUs(const ClientOptions& options, int64_t timeout_ms);

class ControlVerbs {
 public:
  ControlVerbs(const ClientOptions& options, LoopSide& loop, HandOver& hand_over, client::UserWaits& waits)
      : options_(options), loop_(loop), hand_over_(hand_over), waits_(waits) {}

  // Connects to all nodes, by connect_timeout_ms.
  Status Start();
  Result<wire::TableInfo> CreateTable(TableSpec spec);
  Result<std::vector<wire::TableInfo>> CreateTables(std::vector<TableSpec> specs);
  Status DropTable(const std::string& name);
  Result<uint64_t> NextRound(const wire::TableInfo& table);
  Result<Client::Traffic> Traffic();
  Result<std::vector<uint64_t>> Staleness();
  Pending BeginBarrier();
  Status Leave();

 private:
  Status BlockingCall(const std::function<void(int64_t deadline_us, client::ClientCore::Done done)>& start,
                      int64_t timeout_ms);

  const ClientOptions& options_;
  LoopSide& loop_;
  HandOver& hand_over_;
  client::UserWaits& waits_;
};

}  // namespace cairn
