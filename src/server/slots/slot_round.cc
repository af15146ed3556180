#include "server/slots/slot_round.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/planted.h"

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

void SaveContributors(const std::vector<Contributor>& contributors, ByteWriter& out) {
  out.Put(uint64_t{contributors.size()});
  for (const Contributor& c : contributors) {
    out.Put(c.incarnation.value);
    out.Put(c.rank.value);
    out.Put(c.weight);
    out.Put(static_cast<uint8_t>((c.live ? 1 : 0) | (c.gradient ? 2 : 0) | (c.refused ? 4 : 0)));
  }
}

std::vector<Contributor> LoadContributors(ByteReader& in) {
  std::vector<Contributor> contributors;
  for (uint64_t n = in.GetCount(21); n > 0; --n) {
    Contributor c;
    c.incarnation = Incarnation{in.Get<uint64_t>()};
    c.rank = Rank{in.Get<uint32_t>()};
    c.weight = in.Get<double>();
    const auto bits = in.Get<uint8_t>();
    c.live = (bits & 1) != 0, c.gradient = (bits & 2) != 0, c.refused = (bits & 4) != 0;
    contributors.push_back(c);
  }
  return contributors;
}

}  // namespace

bool SlotRound::MarkCounts(SlotId slot, const Member& member) const {
  if (!member.MarkedFor(open_)) return false;
  return !member.mark.NamesSlot(slot) || CAIRN_BUG(kDonePerThread) ||
         contributions_.Find(member.rank, member.incarnation) != nullptr;
}

bool SlotRound::AllMarked(SlotId slot, const DoneMarks& marks, Round latest_start) const {
  bool reason = !contributions_.empty() || open_ < latest_start;
  for (const Member& member : marks.members()) {
    if (!member.AwaitedIn(open_)) continue;
    if (!MarkCounts(slot, member)) return false;
    reason = true;
  }
  return reason;
}

std::vector<uint32_t> SlotRound::MissingRanks(SlotId slot, const DoneMarks& marks) const {
  std::vector<uint32_t> missing;
  for (const Member& member : marks.members()) {
    const bool awaited = summed_ ? member.DecidesIn(open_) && !member.DecidedFor(open_)
                                 : member.AwaitedIn(open_) && !MarkCounts(slot, member);
    if (awaited) missing.push_back(member.rank.value);
  }
  return missing;
}

Status SlotRound::Agree(const TableSpec& spec, const DoneMarks& marks, RoundTerms* terms) const {
  const RoundTerms* first = nullptr;
  AgreedStep step;
  bool differ = false;
  ForEachTerms(open_, marks, contributions_.all(), [&](Rank, const RoundTerms& given) {
    if (first == nullptr) first = &given;
    differ |= !first->SameAs(given) || !step.Add(given.hyper.step);
  });
  if (first != nullptr) *terms = *first;
  terms->hyper.step = step.value();
  if (!differ || CAIRN_BUG(kHyperUnchecked)) return Status::Ok();
  std::vector<GivenBy<RoundTerms>> all;
  ForEachTerms(open_, marks, contributions_.all(),
               [&](Rank rank, const RoundTerms& given) { all.push_back({rank, &given}); });
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
  ForEachTerms(open_, marks, contributions_.all(),
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
         std::any_of(contributions_.all().begin(), contributions_.all().end(),
                     [](const Contribution& c) { return c.not_finite; });
}

const SlotRound::Summed& SlotRound::SumUp(const wire::TableInfo& table, const DoneMarks& marks,
                                          table::SlotTable& rows, bool want_contributors) {
  CAIRN_CHECK(!summed_);
  Summed summed;
  const double weights =
      contributions_.SumWeights(open_, marks, want_contributors ? &summed.contributors : nullptr);
  summed.divisor = DivisorOf(table.spec, PushOp::kUpdate, weights);
  contributions_.FoldRest(rows);
  bool finite = !SomebodyNotFinite(marks) || CAIRN_BUG(kReportForgotten);
  if (rows.staged() && summed.divisor > 0) {
    const bool sum = table.spec.optimizer == OptimizerKind::kSum;
    const auto report = rows.ReportStaged(sum ? 1.0 : summed.divisor);
    summed.report.sum_squares = report.sum_squares;
    finite &= report.finite;
  }
  summed.report.not_finite = finite ? 0 : 1;
  summed.something = rows.staged() || !finite;
  CAIRN_CHECK(!contributions_.HasUnfolded());
  return summed_.emplace(std::move(summed));
}

ClosedRound SlotRound::Decide(const wire::TableInfo& table, const DoneMarks& marks, table::SlotTable& rows,
                              bool want_contributors) {
  ClosedRound closed;
  closed.all_joined = AllJoined(open_, marks);
  if (summed_) {
    DecideSummedUp(table, marks, rows, &closed);
  } else {
    DecideAtOnce(table, marks, rows, want_contributors, &closed);
  }
  for (const Contribution& c : contributions_.all())
    if (!c.refused.ok()) closed.refused.push_back({c.incarnation, c.refused});
  // What changes values is a whole sum, of somebody's weight.
  CAIRN_CHECK(closed.effect == ClosedRound::Effect::kNothing ||
              (closed.divisor > 0 && rows.staged() && !contributions_.HasUnfolded()));
  return closed;
}

void SlotRound::DecideAtOnce(const wire::TableInfo& table, const DoneMarks& marks, table::SlotTable& rows,
                             bool want_contributors, ClosedRound* closed) {
  RoundTerms terms;
  closed->outcome = Agree(table.spec, marks, &terms);
  closed->hyper = terms.hyper;
  closed->op = terms.op;
  closed->column = terms.column;
  const double weights =
      contributions_.SumWeights(open_, marks, want_contributors ? &closed->contributors : nullptr);
  closed->divisor = DivisorOf(table.spec, terms.op, weights);
  if (!closed->outcome.ok()) return;
  if (!(closed->divisor > 0)) {
    if (terms.op != PushOp::kAssign) return;
    closed->outcome = {Code::kUnavailable, "round " + std::to_string(open_.value) + " of table \"" +
                                               table.spec.name +
                                               "\": nobody gave values: give them in the next round"};
    return;
  }
  contributions_.FoldRest(rows);
  closed->counts = terms.op == PushOp::kUpdate;
  if (!rows.staged()) return;
  closed->effect = terms.op == PushOp::kAssign ? ClosedRound::Effect::kAssign : ClosedRound::Effect::kUpdate;
}

void SlotRound::DecideSummedUp(const wire::TableInfo& table, const DoneMarks& marks, table::SlotTable& rows,
                               ClosedRound* closed) {
  closed->two_phase = true;
  closed->divisor = summed_->divisor;
  closed->contributors = summed_->contributors;
  closed->report = summed_->report;
  if (CAIRN_BUG(kFrozenDivisorLost))
    closed->divisor =
        DivisorOf(table.spec, PushOp::kUpdate, contributions_.SumWeights(open_, marks, nullptr));
  std::optional<Decision> decision;
  closed->outcome = AgreeOnDecision(table.spec, marks, &decision);
  closed->skipped = closed->outcome.ok() && (!decision || decision->skip);
  if (decision) closed->hyper = decision->hyper;
  if (decision && !decision->skip) closed->scale = decision->scale;
  if (closed->skipped && CAIRN_BUG(kSkipCountsStep)) closed->counts = true;
  if (!closed->outcome.ok() || closed->skipped || !(closed->divisor > 0)) return;
  closed->counts = true;
  if (rows.staged()) closed->effect = ClosedRound::Effect::kUpdate;
}

void SlotRound::Close(Round round, const ClosedRound& closed, table::SlotTable& rows) {
  CAIRN_CHECK(round >= open_ || CAIRN_ANY_BUG);  // a round closes once
  if (closed.counts) rows.CountRound(closed.hyper);
  if (closed.effect == ClosedRound::Effect::kAssign) rows.AssignStaged(closed.column, closed.divisor);
  if (closed.effect == ClosedRound::Effect::kUpdate)
    rows.ApplyStaged(closed.hyper, closed.divisor, closed.scale);
  if (rows.staged()) rows.DropStaged();
  last_outcome_ = closed.outcome;
  last_all_joined_ = closed.all_joined;
  last_refused_ = closed.refused;
  contributions_.Clear();
  summed_.reset();
  open_ = round.Next();
}

void SlotRound::DropStaged(table::SlotTable& rows) {
  if (summed_) return;
  contributions_.Clear();
  if (rows.staged()) rows.DropStaged();
}

Status SlotRound::OutcomeFor(Incarnation incarnation, Round round) const {
  if (round.Next() != open_) return Status::Ok();
  // Where nobody gave values, a worker whose own part was refused is told why.
  if (!last_outcome_.ok() && last_outcome_.code() != Code::kUnavailable) return last_outcome_;
  for (const RefusedPart& part : last_refused_)
    if (part.incarnation == incarnation) return part.why;
  return last_outcome_;
}

void SlotRound::SaveSummed(ByteWriter& out) const {
  out.Put(summed_->divisor);
  out.Put(static_cast<uint8_t>(summed_->something));
  out.Put(summed_->report);
  SaveContributors(summed_->contributors, out);
  contributions_.Save(out);
}

bool SlotRound::LoadSummed(Round round, ByteReader& in) {
  open_ = round;
  contributions_.Clear();
  Summed summed;
  summed.divisor = in.Get<double>();
  summed.something = in.Get<uint8_t>() != 0;
  summed.report = in.Get<wire::SlotReport>();
  summed.contributors = LoadContributors(in);
  if (!contributions_.Load(in)) return false;
  summed_ = std::move(summed);
  return true;
}

void SlotRound::Save(ByteWriter& out) const {
  out.Put(open_.value);
  SaveStatus(last_outcome_, out);
  SaveRefused(last_refused_, out);
  out.Put(static_cast<uint8_t>(last_all_joined_));
  out.Put(static_cast<uint8_t>(summed_.has_value()));
  if (summed_) SaveSummed(out);
}

bool SlotRound::Load(ByteReader& in) {
  open_ = Round{in.Get<uint64_t>()};
  last_outcome_ = LoadStatus(in);
  last_refused_ = LoadRefused(in);
  last_all_joined_ = in.Get<uint8_t>() != 0;
  contributions_.Clear();
  summed_.reset();
  if (in.Get<uint8_t>() != 0 && !LoadSummed(open_, in)) return false;
  return in.ok();
}

}  // namespace cairn::server
