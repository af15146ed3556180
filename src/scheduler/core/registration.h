// Nodes that come and go: who may register, whose heartbeat it is, who leaves. A node is known by the uid of
// its registration and by the incarnation that it was given. One thread.
#pragma once

#include <cstdint>
#include <map>

#include "base/log.h"
#include "scheduler/core/barriers.h"
#include "scheduler/core/connections.h"
#include "scheduler/core/failover.h"
#include "scheduler/core/journal.h"
#include "scheduler/core/presence.h"
#include "scheduler/core/scale.h"
#include "scheduler/core/state_teller.h"
#include "scheduler/core/table_requests.h"

namespace cairn::scheduler {

class Registration {
 public:
  Registration(int64_t heartbeat_us, Journal& journal, Connections& connections, Presence& presence,
               Barriers& barriers, StateTeller& teller, TableRequests& tables, Failover& failover,
               const Scale& scale, const LogLine& log)
      : heartbeat_us_(heartbeat_us),
        journal_(journal),
        connections_(connections),
        presence_(presence),
        barriers_(barriers),
        teller_(teller),
        tables_(tables),
        failover_(failover),
        scale_(scale),
        log_(log) {}

  // After a start: those that the log has.
  void Restore(int64_t now_us);
  void OnRegister(ConnId conn, const wire::Register& request, int64_t now_us);
  // Whether the heartbeat is a live node's, which is heard with it. Others are refused.
  bool Recognise(ConnId conn, const wire::Heartbeat& heartbeat, int64_t now_us);
  void OnLeave(ConnId conn, const wire::Leave& leave, int64_t now_us);
  // The node that registered with this uid, or null.
  const NodeRecord* FindByUid(uint64_t uid) const;

 private:
  void Hear(Incarnation node, ConnId conn, int64_t now_us);
  void RefuseHeartbeat(ConnId conn, const wire::Heartbeat& heartbeat, const NodeRecord* node);
  void AnswerKnown(ConnId conn, const NodeRecord& node, int64_t now_us);
  // A newcomer for whom there is no place. It ends by that, unless it may ask again (kUnavailable).
  void RefuseNewcomer(ConnId conn, const Status& why);
  void AdmitServer(ConnId conn, const wire::Register& request, int64_t now_us);
  void AdmitWorker(ConnId conn, const wire::Register& request, int64_t now_us);
  void Admit(ConnId conn, const wire::Register& request, uint32_t rank, uint64_t barrier_base,
             int64_t now_us);
  wire::Registered RegisteredFor(const NodeRecord& node) const;

  const int64_t heartbeat_us_;
  Journal& journal_;
  Connections& connections_;
  Presence& presence_;
  Barriers& barriers_;
  StateTeller& teller_;
  TableRequests& tables_;
  Failover& failover_;
  const Scale& scale_;
  const LogLine& log_;
  std::map<uint64_t, Incarnation> by_uid_;  // index into DurableState::nodes
};

}  // namespace cairn::scheduler
