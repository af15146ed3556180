// Gradients of tables that travel with fewer bits (TableSpec::wire): rounded here, once, before the
// push is numbered and kept. docs/decisions/0021-less-on-the-wire.md.
#pragma once

#include "cairn/status.h"
#include "client/partition/draft.h"
#include "client/partition/error_feedback.h"
#include "client/partition/partition.h"

namespace cairn::client {

// The request's values are gradients that are not sent as the caller has them: rounded, or chosen
// from (error_feedback.h). Its drafts then have values of their own.
bool ChangesValues(const PartitionInput& input);

// Top-k: what is sent of the gradient takes the place of input.values, while the result lives. Nothing is
// chosen where there is no `feedback`, the values do not count, or Choose leaves them to others.
ErrorFeedback::Chosen ChooseLargest(ErrorFeedback* feedback, PartitionInput& input);

// Rounds the values of the drafts, if the table asks for it. What is too large is refused, where the
// table refuses what is infinite. Requires that the drafts own their values if ChangesValues.
Status RoundDrafts(const PartitionInput& input, Drafts& drafts);

}  // namespace cairn::client
