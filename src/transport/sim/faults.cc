#include "transport/sim/faults.h"

namespace cairn::sim {

const char* Name(Fault fault) {
  switch (fault) {
    case Fault::kLongDelay: return "long delay";
    case Fault::kLoss: return "loss";
    case Fault::kReorder: return "reorder";
    case Fault::kDuplicate: return "duplicate";
    case Fault::kLateDuplicate: return "late duplicate";
    case Fault::kReset: return "connection reset";
    case Fault::kPartition: return "partition";
    case Fault::kOneWay: return "one-way partition";
    case Fault::kSchedulerCrash: return "scheduler crash";
    case Fault::kStoreCrash: return "crash in an append";
    case Fault::kTornTail: return "torn tail of the log";
    case Fault::kTornOrder: return "log written out of order";
    case Fault::kSyncFails: return "log not synced";
    case Fault::kWorkerCrash: return "worker crash";
    case Fault::kTwin: return "second start of a rank";
    case Fault::kServerCrash: return "server crash";
    case Fault::kServerRestart: return "server restart";
    case Fault::kServerSilent: return "server silent for long";
    case Fault::kServersCut: return "servers cut off";
    case Fault::kSchedulerCut: return "scheduler cut off";
    case Fault::kSlowLink: return "slow link";
    case Fault::kOwnersLost: return "all owners lost";
    case Fault::kMemory: return "memory fault";
    case Fault::kSlowNode: return "slow node";
    case Fault::kPause: return "paused node";
    case Fault::kKvUnknown: return "unknown outcome of a write";
    case Fault::kKvLeaseLost: return "lease ended early";
    case Fault::kTwoLeaders: return "replaced scheduler found";
    case Fault::kCount: break;
  }
  return "?";
}

}  // namespace cairn::sim
