#include "checkers.h"

namespace cairn::sim {

std::vector<std::unique_ptr<Checker>> MakeCheckers(Context& context) {
  std::vector<std::unique_ptr<Checker>> all;
  for (auto make : {MakeAppliedOnce,    MakeEarlyAck,     MakeSameOutcome,
                    MakeExactSums,      MakeRoundOnce,    MakeNextRound,
                    MakeDecisions,      MakeContributors, MakeDivisor,
                    MakeHyper,          MakeAssigned,     MakeJoined,
                    MakeReferenceModel, MakeReports,      MakeMonotoneReads,
                    MakeReadsCommitted, MakeIncarnations, MakeViewsDurable,
                    MakeTables,         MakeBarrier,      MakeBlame,
                    MakeMissed,         MakeTerms,        MakeOutcomes,
                    MakeAmplification,  MakeQueueBounds,  MakeLeftEarly,
                    MakeOneOwner,       MakePromotion,    MakeWaitsFor,
                    MakeEqualHashes,    MakePlacement,    MakeAppliedCommitted,
                    MakeInOrder,        MakeEqualNumbers, MakeReplicaAmplification,
                    MakeDeeds,          MakeGradients,    MakeWholePush,
                    MakeOwnPush,        MakeRoom,         MakeBounded}) {
    all.push_back(make(context));
  }
  return all;
}

}  // namespace cairn::sim
