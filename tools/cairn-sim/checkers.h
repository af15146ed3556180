// One maker per checker; check_all.cc puts them together. Grouped in files by what they look at.
#pragma once

#include <memory>

#include "checker.h"

namespace cairn::sim {

using CheckerPtr = std::unique_ptr<Checker>;

// check_pushes.cc
CheckerPtr MakeAppliedOnce(Context& context);  // applied-once
CheckerPtr MakeSameOutcome(Context& context);  // same-outcome
// check_gradients.cc
CheckerPtr MakeGradients(Context& context);  // gradients
// check_callers.cc
CheckerPtr MakeWholePush(Context& context);  // whole-push
CheckerPtr MakeOwnPush(Context& context);    // own-push
CheckerPtr MakeRoom(Context& context);       // room
// check_sums.cc
CheckerPtr MakeExactSums(Context& context);  // exact-sums
// check_bounded.cc
CheckerPtr MakeBounded(Context& context);  // bounded
// check_rounds.cc
CheckerPtr MakeRoundOnce(Context& context);     // round-once
CheckerPtr MakeNextRound(Context& context);     // next-round
CheckerPtr MakeContributors(Context& context);  // contributors
// check_divisor.cc
CheckerPtr MakeDivisor(Context& context);  // divisor
CheckerPtr MakeHyper(Context& context);    // hyper
// check_two_phase.cc
CheckerPtr MakeDecisions(Context& context);  // decisions
CheckerPtr MakeReports(Context& context);    // reports
// check_assigned.cc
CheckerPtr MakeAssigned(Context& context);  // assigned
// check_joined.cc
CheckerPtr MakeJoined(Context& context);  // joined
// check_deeds.cc
CheckerPtr MakeDeeds(Context& context);  // only counts
// check_model.cc
CheckerPtr MakeReferenceModel(Context& context);  // reference-model
// check_reads.cc
CheckerPtr MakeMonotoneReads(Context& context);  // monotone-reads
// check_commit.cc
CheckerPtr MakeEarlyAck(Context& context);        // early-ack
CheckerPtr MakeReadsCommitted(Context& context);  // reads-committed
// check_order.cc
CheckerPtr MakeInOrder(Context& context);  // in-order
// check_owners.cc
CheckerPtr MakeOneOwner(Context& context);          // one-owner
CheckerPtr MakePromotion(Context& context);         // promotion
CheckerPtr MakeWaitsFor(Context& context);          // waits-for
CheckerPtr MakeAppliedCommitted(Context& context);  // applied-committed
CheckerPtr MakeEqualHashes(Context& context);       // equal-hashes
CheckerPtr MakePlacement(Context& context);         // placement
// check_numbers.cc
CheckerPtr MakeEqualNumbers(Context& context);  // equal-numbers
// check_scheduler.cc
CheckerPtr MakeIncarnations(Context& context);  // incarnations
CheckerPtr MakeViewsDurable(Context& context);  // views-durable
CheckerPtr MakeTables(Context& context);        // tables
CheckerPtr MakeBlame(Context& context);         // blame
CheckerPtr MakeMissed(Context& context);        // missed
CheckerPtr MakeTerms(Context& context);         // terms
CheckerPtr MakeBarrier(Context& context);       // barrier
// check_calls.cc
CheckerPtr MakeOutcomes(Context& context);              // outcomes
CheckerPtr MakeAmplification(Context& context);         // amplification
CheckerPtr MakeReplicaAmplification(Context& context);  // amplification
CheckerPtr MakeQueueBounds(Context& context);           // queue-bounds
CheckerPtr MakeLeftEarly(Context& context);             // left-early

}  // namespace cairn::sim
