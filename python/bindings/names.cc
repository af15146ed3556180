#include "names.h"

#include <initializer_list>
#include <utility>
#include <variant>

#include "raising.h"

namespace cairn::python {
namespace {

template <class T>
T Named(const char* what, const std::string& name, std::initializer_list<std::pair<const char*, T>> all) {
  std::string known;
  for (const auto& [word, value] : all) {
    if (name == word) return value;
    known += known.empty() ? "" : ", ";
    known += word;
  }
  RaiseNamed("InvalidArgumentError",
             std::string(what) + " \"" + name + "\" is unknown: it is one of " + known);
}

}  // namespace

ElementType ElementOf(const std::string& name) {
  return Named<ElementType>("dtype", name,
                            {{"float32", ElementType::kFloat32}, {"int64", ElementType::kInt64}});
}

Storage StorageOf(const std::string& name) {
  return Named<Storage>(
      "storage", name,
      {{"float32", Storage::kFull}, {"bfloat16", Storage::kBfloat16}, {"float16", Storage::kFloat16}});
}

Mode ModeOf(const std::string& name) {
  return Named<Mode>("mode", name, {{"sync", Mode::kSync}, {"async", Mode::kAsync}});
}

OptimizerKind OptimizerOf(const std::string& name) {
  return Named<OptimizerKind>("optimizer", name,
                              {{"sum", OptimizerKind::kSum},
                               {"sgd", OptimizerKind::kSgd},
                               {"adagrad", OptimizerKind::kAdagrad},
                               {"adam", OptimizerKind::kAdam},
                               {"adamw", OptimizerKind::kAdamW},
                               {"rmsprop", OptimizerKind::kRmsprop},
                               {"mean", OptimizerKind::kMean},
                               {"first", OptimizerKind::kFirst},
                               {"sparse_adam", OptimizerKind::kSparseAdam},
                               {"rowwise_adagrad", OptimizerKind::kRowwiseAdagrad},
                               {"ftrl", OptimizerKind::kFtrl}});
}

NonFinitePolicy NonFiniteOf(const std::string& name) {
  return Named<NonFinitePolicy>("non_finite", name,
                                {{"reject", NonFinitePolicy::kReject}, {"allow", NonFinitePolicy::kAllow}});
}

WireFormat WireOf(const std::string& name) {
  return Named<WireFormat>("wire", name,
                           {{"plain", WireFormat::kPlain},
                            {"f16", WireFormat::kFloat16},
                            {"bf16", WireFormat::kBfloat16},
                            {"topk", WireFormat::kTopK},
                            {"lz4", WireFormat::kLz4}});
}

InitKind InitKindOf(const std::string& name) {
  return Named<InitKind>("init", name,
                         {{"zeros", InitKind::kZeros},
                          {"constant", InitKind::kConstant},
                          {"uniform", InitKind::kUniform},
                          {"normal", InitKind::kNormal}});
}

Init InitOf(const InitTuple& init) {
  if (const auto* own = std::get_if<OwnInit>(&init)) {
    const auto& [kind, a, b, seed] = *own;
    return {InitKindOf(kind), static_cast<float>(a), static_cast<float>(b), seed, 0};
  }
  const auto& [kind, a, b, seed, stream] = std::get<StreamInit>(init);
  return {InitKindOf(kind), static_cast<float>(a), static_cast<float>(b), seed, stream};
}

}  // namespace cairn::python
