#include "server/slots/round_terms.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>

namespace cairn::server {
namespace {

constexpr size_t kMostNamed = 4;  // ranks that a text names besides the first

constexpr double Hyper::* kFields[] = {&Hyper::lr,    &Hyper::weight_decay, &Hyper::beta1,
                                       &Hyper::beta2, &Hyper::eps,          &Hyper::dampening};

// As torch.optim calls it in the optimizer of this table.
const char* FieldName(const TableSpec& spec, double Hyper::* field) {
  const OptimizerKind kind = spec.optimizer;
  const bool ftrl = kind == OptimizerKind::kFtrl;
  const bool sgd = kind == OptimizerKind::kSgd || kind == OptimizerKind::kRmsprop;
  if (field == &Hyper::lr) return "lr";
  if (field == &Hyper::weight_decay) return ftrl ? "l2" : "weight_decay";
  if (field == &Hyper::beta1) return ftrl ? "l1" : sgd ? "momentum" : "beta1";
  if (field == &Hyper::beta2) return ftrl ? "beta" : kind == OptimizerKind::kRmsprop ? "alpha" : "beta2";
  if (field == &Hyper::eps) return "eps";
  return spec.optimizer == OptimizerKind::kAdagrad ? "lr_decay" : "dampening";
}

bool SameBits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

std::string Number(double value, int digits) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.*g", digits, value);
  return text;
}

std::string RankWord(Rank rank) { return "rank " + std::to_string(rank.value); }

Status Mismatch(const TableSpec& spec, Round round, const std::string& text) {
  return {Code::kHyperMismatch,
          "round " + std::to_string(round.value) + " of table \"" + spec.name + "\": " + text};
}

// "rank 0 has lr 0.1, rank 2 has lr 0.01", of those who differ from the first. Empty: none does.
template <class What, class Value>
std::string NumbersDiffer(const std::vector<GivenBy<What>>& given, const std::string& has, Value value) {
  const double first = value(*given.front().what);
  std::vector<GivenBy<What>> named{given.front()};
  bool look_alike = false;  // in a few digits
  for (const GivenBy<What>& other : given) {
    const double theirs = value(*other.what);
    if (SameBits(first, theirs) || named.size() > kMostNamed) continue;
    if (std::any_of(named.begin() + 1, named.end(), [&](auto& n) { return n.rank == other.rank; })) continue;
    look_alike |= Number(first, 6) == Number(theirs, 6);
    named.push_back(other);
  }
  if (named.size() == 1) return "";
  std::string text;
  for (const GivenBy<What>& one : named) {
    if (!text.empty()) text += ", ";
    text += RankWord(one.rank) + has + Number(value(*one.what), look_alike ? 17 : 6);
  }
  return text;
}

template <class What>
Status HyperDiffers(const TableSpec& spec, Round round, const std::vector<GivenBy<What>>& given) {
  for (double Hyper::* field : kFields) {
    const std::string text = NumbersDiffer(given, std::string(" has ") + FieldName(spec, field) + " ",
                                           [&](const What& what) { return what.hyper.*field; });
    if (!text.empty()) return Mismatch(spec, round, text + ": give all workers the same");
  }
  std::vector<GivenBy<What>> counting;  // step 0 says nothing
  std::copy_if(given.begin(), given.end(), std::back_inserter(counting),
               [](const GivenBy<What>& one) { return one.what->hyper.step != 0; });
  const std::string steps =
      counting.empty() ? "" : NumbersDiffer(counting, " is in step ", [](const What& what) {
        return static_cast<double>(what.hyper.step);
      });
  if (!steps.empty()) return Mismatch(spec, round, steps + ": all workers count the same steps");
  return Mismatch(spec, round, "workers differ: give all workers the same");
}

// A rank that says yes and one that says no, in this order; false where all say the same.
template <class What, class Says>
bool Disagree(const std::vector<GivenBy<What>>& given, Says says, Rank* yes, Rank* no) {
  auto find = [&](bool wanted) {
    return std::find_if(given.begin(), given.end(), [&](auto& g) { return says(*g.what) == wanted; });
  };
  const auto first_yes = find(true), first_no = find(false);
  if (first_yes == given.end() || first_no == given.end()) return false;
  *yes = first_yes->rank;
  *no = first_no->rank;
  return true;
}

}  // namespace

bool SameBits(const Hyper& a, const Hyper& b) {
  return std::all_of(std::begin(kFields), std::end(kFields),
                     [&](double Hyper::* field) { return SameBits(a.*field, b.*field); });
}

bool Decision::SameAs(const Decision& other) const {
  return skip == other.skip && (skip || SameBits(scale, other.scale)) && server::SameBits(hyper, other.hyper);
}

Status TermsDiffer(const TableSpec& spec, Round round, const std::vector<GivenBy<RoundTerms>>& given) {
  Rank yes, no;
  if (Disagree(given, [](const RoundTerms& t) { return t.two_phase; }, &yes, &no)) {
    return Mismatch(spec, round,
                    RankWord(yes) + " clips or uses a gradient scaler in this round, " + RankWord(no) +
                        " does not: do the same on all workers");
  }
  if (Disagree(given, [](const RoundTerms& t) { return t.op != PushOp::kUpdate; }, &yes, &no)) {
    return Mismatch(
        spec, round,
        RankWord(yes) + " assigns, " + RankWord(no) + " pushes gradients: do the same on all workers");
  }
  if (Disagree(given, [](const RoundTerms& t) { return t.weighted; }, &yes, &no)) {
    return Mismatch(spec, round,
                    RankWord(yes) + " gives samples= in this round, " + RankWord(no) +
                        " does not: give the number of samples on every worker, or on none");
  }
  const std::string columns = NumbersDiffer(
      given, " assigns column ", [](const RoundTerms& t) { return static_cast<double>(t.column); });
  if (!columns.empty()) return Mismatch(spec, round, columns + ": do the same on all workers");
  return HyperDiffers(spec, round, given);
}

Status DecisionsDiffer(const TableSpec& spec, Round round, const std::vector<GivenBy<Decision>>& given) {
  Rank yes, no;
  if (Disagree(given, [](const Decision& d) { return d.skip; }, &yes, &no)) {
    return Mismatch(
        spec, round,
        RankWord(yes) + " skips it, " + RankWord(no) + " applies it: decide the same on all workers");
  }
  const bool skips = given.front().what->skip;
  const std::string scales = NumbersDiffer(given, " scales its gradient by ",
                                           [&](const Decision& d) { return skips ? 1.0 : d.scale; });
  if (!scales.empty()) return Mismatch(spec, round, scales + ": decide the same on all workers");
  return HyperDiffers(spec, round, given);
}

}  // namespace cairn::server
