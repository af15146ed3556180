// Servers that are lost: when one may be declared dead, and the record that goes on without it (rules 7
// and 44). One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/log.h"
#include "scheduler/core/connections.h"
#include "scheduler/core/journal.h"
#include "scheduler/core/load_reports.h"
#include "scheduler/core/presence.h"
#include "scheduler/core/single_owners.h"

namespace cairn::scheduler {

class Failover {
 public:
  // `lost_after_us`: how long a server that is needed gets to come back.
  Failover(int64_t lost_after_us, Journal& journal, Connections& connections, Presence& presence,
           const LoadReports& loads, SingleOwners& single_owners, const LogLine& log)
      : lost_after_us_(lost_after_us),
        journal_(journal),
        connections_(connections),
        presence_(presence),
        loads_(loads),
        single_owners_(single_owners),
        log_(log) {}

  void DetectLostServers(int64_t now_us);
  // Another process has registered at its address.
  void OnReplaced(const wire::ServerInfo& server, int64_t now_us);

 private:
  // The slots that would hang on nobody who is heard, were this server declared dead now.
  std::vector<uint32_t> SlotsThatNeed(const wire::ServerInfo& server, int64_t now_us) const;
  // One record: the job goes on with the other owners, or has failed. The server is retired.
  void Lose(const wire::ServerInfo& lost, std::string how, int64_t now_us);

  const int64_t lost_after_us_;
  Journal& journal_;
  Connections& connections_;
  Presence& presence_;
  const LoadReports& loads_;
  SingleOwners& single_owners_;
  const LogLine& log_;
};

}  // namespace cairn::scheduler
