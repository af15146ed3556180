// What becomes of a slot's open round when all are done with it (docs/internals/consistency.md, rules 17 and
// 31 to 34): it closes at once, or it is summed up, reported, and closes as its workers decide.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/planted.h"
#include "server/round/round.h"

namespace cairn::server {
namespace {

// Calls look(rank, terms) for each mark and contribution whose terms count: joined workers agree
// to everything.
template <class Look>
void ForEachTerms(Round round, const DoneMarks& marks, const std::vector<Contribution>& contributions,
                  Look look) {
  for (const Member& member : marks.members()) {
    if (member.AwaitedIn(round) && member.MarkedFor(round) && !member.mark.joined)
      look(member.rank, member.mark.terms);
  }
  for (const Contribution& c : contributions) look(c.rank, c.terms);
}

bool AllJoined(Round round, const DoneMarks& marks) {
  bool anybody = false;
  for (const Member& member : marks.members()) {
    if (!member.AwaitedIn(round)) continue;
    const bool joined = member.JoinedIn(round);
    if (joined && CAIRN_BUG(kJoinedByOne)) return true;
    if (!joined) return false;
    anybody = true;
  }
  return anybody;
}

// What the sum is divided by: the weights, unless the table wants the sum itself.
double DivisorOf(const TableSpec& spec, PushOp op, double weights) {
  const bool reduce_sum = (spec.optimizer_flags & kReduceSum) != 0 && op == PushOp::kUpdate;
  return reduce_sum && weights > 0 ? 1.0 : weights;
}

}  // namespace

Status SlotRound::Agree(const TableSpec& spec, const DoneMarks& marks, RoundTerms* terms) const {
  const RoundTerms* first = nullptr;
  AgreedStep step;
  bool differ = false;
  ForEachTerms(open_, marks, contributions_, [&](Rank, const RoundTerms& given) {
    if (first == nullptr) first = &given;
    differ |= !first->SameAs(given) || !step.Add(given.hyper.step);
  });
  if (first != nullptr) *terms = *first;
  terms->hyper.step = step.value();
  if (!differ || CAIRN_BUG(kHyperUnchecked)) return Status::Ok();
  std::vector<GivenBy<RoundTerms>> all;
  ForEachTerms(open_, marks, contributions_, [&](Rank rank, const RoundTerms& given) {
    all.push_back({rank, &given});
  });
  return TermsDiffer(spec, open_, all);
}

Status SlotRound::AgreeOnDecision(const TableSpec& spec, const DoneMarks& marks,
                                  std::optional<Decision>* decision) const {
  bool differ = false;
  AgreedStep step;
  auto for_each = [&](auto look) {
    for (const Member& member : marks.members())
      if (member.DecidesIn(open_) && member.DecidedFor(open_)) look(member.rank, *member.decision);
  };
  for_each([&](Rank, const Decision& given) {
    if (!*decision) *decision = given;
    differ |= !(*decision)->SameAs(given) || !step.Add(given.hyper.step);
  });
  if (*decision) (*decision)->hyper.step = step.value();
  if (!differ) return Status::Ok();
  std::vector<GivenBy<Decision>> all;
  for_each([&](Rank rank, const Decision& given) { all.push_back({rank, &given}); });
  return DecisionsDiffer(spec, open_, all);
}

// Those who decide have: at least one of them, or nobody is left who could and somebody goes on
// without them (a joined worker waits for this round, or another starts with a later one).
bool SlotRound::AllDecided(const DoneMarks& marks, Round latest_start) const {
  bool decided = false, missing = false, joined = false;
  for (const Member& member : marks.members()) {
    joined |= member.AwaitedIn(open_) && member.JoinedIn(open_);
    if (!member.DecidesIn(open_)) continue;
    decided |= member.DecidedFor(open_);
    missing |= !member.DecidedFor(open_);
  }
  if (missing) return decided && CAIRN_BUG(kDecideEarly);
  return decided || joined || open_ < latest_start;
}

SlotRound::Step SlotRound::NextStep(SlotId slot, const DoneMarks& marks, Round latest_start) const {
  if (summed_) return AllDecided(marks, latest_start) ? Step::kClose : Step::kWait;
  if (!AllMarked(slot, marks, latest_start)) return Step::kWait;
  bool two_phase = false;
  ForEachTerms(open_, marks, contributions_,
               [&](Rank, const RoundTerms& given) { two_phase |= given.two_phase; });
  // Where they differ there is nothing to decide.
  RoundTerms terms;
  return two_phase && Agree({}, marks, &terms).ok() ? Step::kSumUp : Step::kClose;
}

bool SlotRound::SomebodyNotFinite(const DoneMarks& marks) const {
  return std::any_of(marks.members().begin(), marks.members().end(),
                     [&](const Member& m) {
                       return m.AwaitedIn(open_) && m.MarkedFor(open_) && m.mark.not_finite;
                     }) ||
         std::any_of(contributions_.begin(), contributions_.end(),
                     [](const Contribution& c) { return c.not_finite; });
}

void SlotRound::FoldRest(table::SlotTable& rows) {
  if (unfolded_ == 0) return;
  for (Contribution& c : contributions_)
    if (!c.folded) Fold(c, rows);
}

const SlotRound::Summed& SlotRound::SumUp(const wire::TableInfo& table, const DoneMarks& marks,
                                          table::SlotTable& rows, bool want_contributors) {
  CAIRN_CHECK(!summed_);
  Summed summed;
  const double weights = SumWeights(marks, want_contributors ? &summed.contributors : nullptr);
  summed.divisor = DivisorOf(table.spec, PushOp::kUpdate, weights);
  FoldRest(rows);
  bool finite = !SomebodyNotFinite(marks) || CAIRN_BUG(kReportForgotten);
  if (rows.staged() && summed.divisor > 0) {
    const bool sum = table.spec.optimizer == OptimizerKind::kSum;
    const auto report = rows.ReportStaged(sum ? 1.0 : summed.divisor);
    summed.report.sum_squares = report.sum_squares;
    finite &= report.finite;
  }
  summed.report.not_finite = finite ? 0 : 1;
  summed.something = rows.staged() || !finite;
  return summed_.emplace(std::move(summed));
}

SlotRound::Closed SlotRound::Decide(const wire::TableInfo& table, const DoneMarks& marks,
                                    table::SlotTable& rows, bool want_contributors) {
  Closed closed;
  closed.all_joined = AllJoined(open_, marks);
  if (summed_) {
    DecideSummedUp(table, marks, rows, &closed);
  } else {
    DecideAtOnce(table, marks, rows, want_contributors, &closed);
  }
  for (const Contribution& c : contributions_)
    if (!c.refused.ok()) closed.refused.push_back({c.incarnation, c.refused});
  return closed;
}

void SlotRound::DecideAtOnce(const wire::TableInfo& table, const DoneMarks& marks, table::SlotTable& rows,
                            bool want_contributors, Closed* closed) {
  RoundTerms terms;
  closed->outcome = Agree(table.spec, marks, &terms);
  closed->hyper = terms.hyper;
  closed->op = terms.op;
  closed->column = terms.column;
  const double weights = SumWeights(marks, want_contributors ? &closed->contributors : nullptr);
  closed->divisor = DivisorOf(table.spec, terms.op, weights);
  if (!closed->outcome.ok()) return;
  if (!(closed->divisor > 0)) {
    if (terms.op != PushOp::kAssign) return;
    closed->outcome = {Code::kUnavailable, "round " + std::to_string(open_.value) + " of table \"" +
                                               table.spec.name +
                                               "\": nobody gave values: give them in the next round"};
    return;
  }
  FoldRest(rows);
  closed->counts = terms.op == PushOp::kUpdate;
  if (!rows.staged()) return;
  closed->effect = terms.op == PushOp::kAssign ? Effect::kAssign : Effect::kUpdate;
}

void SlotRound::DecideSummedUp(const wire::TableInfo& table, const DoneMarks& marks, table::SlotTable& rows,
                               Closed* closed) {
  closed->two_phase = true;
  closed->divisor = summed_->divisor;
  closed->contributors = summed_->contributors;
  closed->report = summed_->report;
  if (CAIRN_BUG(kFrozenDivisorLost))
    closed->divisor = DivisorOf(table.spec, PushOp::kUpdate, SumWeights(marks, nullptr));
  std::optional<Decision> decision;
  closed->outcome = AgreeOnDecision(table.spec, marks, &decision);
  closed->skipped = closed->outcome.ok() && (!decision || decision->skip);
  if (decision) closed->hyper = decision->hyper;
  if (decision && !decision->skip) closed->scale = decision->scale;
  if (closed->skipped && CAIRN_BUG(kSkipCountsStep)) closed->counts = true;
  if (!closed->outcome.ok() || closed->skipped || !(closed->divisor > 0)) return;
  closed->counts = true;
  if (rows.staged()) closed->effect = Effect::kUpdate;
}

}  // namespace cairn::server
