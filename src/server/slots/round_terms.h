// What a worker says of a round besides its values, and all of its workers must say alike: the
// hyper-parameters, the operation, the phases, whether it gives a weight, and the decision of a round in two
// phases (docs/internals/consistency.md, rules 17, 31, 33 and 34). Values, and the words for those who
// differ.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "cairn/status.h"
#include "cairn/types.h"
#include "wire/data.h"

namespace cairn::server {

// By bits: a NaN must not make a worker differ from itself. But for the step: AgreedStep.
bool SameBits(const Hyper& a, const Hyper& b);

// The number of a step that all who count it give; a 0 says nothing of it (a worker without a
// gradient does not know whether the others have one). All 0: the round is no step.
class AgreedStep {
 public:
  // False if another number was given before.
  bool Add(uint64_t step) {
    if (step_ == 0) step_ = step;
    return step == 0 || step == step_;
  }
  uint64_t value() const { return step_; }

 private:
  uint64_t step_ = 0;
};

// Of a contribution or a done mark.
struct RoundTerms {
  Hyper hyper;
  PushOp op = PushOp::kUpdate;
  uint8_t column = 0;  // of an assign
  bool two_phase = false;
  bool weighted = false;  // the user gave a weight

  static RoundTerms Of(const wire::PushParams& params) {
    return {params.hyper(), static_cast<PushOp>(params.op), params.column, params.has(wire::kParamTwoPhase),
            params.has(wire::kParamWeighted)};
  }
  bool SameAs(const RoundTerms& other) const {
    return two_phase == other.two_phase && weighted == other.weighted && op == other.op &&
           column == other.column && SameBits(hyper, other.hyper);
  }
};

// What a worker wants to become of a round that is summed up.
struct Decision {
  bool skip = false;
  double scale = 1;
  Hyper hyper;

  static Decision Of(const wire::PushParams& params) {
    return {params.has(wire::kParamSkip), params.scale, params.hyper()};
  }
  bool SameAs(const Decision& other) const;
};

template <class What>
struct GivenBy {
  Rank rank;
  const What* what;
};

// kHyperMismatch with the first thing in which somebody differs from the first of them, and the
// ranks. Requires that somebody does.
Status TermsDiffer(const TableSpec& spec, Round round, const std::vector<GivenBy<RoundTerms>>& given);
Status DecisionsDiffer(const TableSpec& spec, Round round, const std::vector<GivenBy<Decision>>& given);

}  // namespace cairn::server
