// The catalogue of tables (rule 8).
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/planted.h"
#include "scheduler/rules.h"

namespace cairn::scheduler {
namespace {

constexpr size_t kMaxNameBytes = 255;
// A slot's part of a dense table travels in one frame: half of the largest leaves room for the
// slots that get a block more than others.
constexpr uint64_t kMaxSlotBytes = wire::kMaxBodyBytes / 2;
constexpr uint32_t kMaxDim = 1u << 20;

const char* Word(TableKind kind) { return kind == TableKind::kDense ? "dense" : "sparse"; }
const char* Word(ElementType element) { return element == ElementType::kFloat32 ? "float32" : "int64"; }
const char* Word(Mode mode) { return mode == Mode::kAsync ? "async" : "sync"; }
const char* Word(OptimizerKind optimizer) { return optimizer == OptimizerKind::kSum ? "sum" : "sgd"; }
const char* Word(NonFinitePolicy policy) { return policy == NonFinitePolicy::kReject ? "reject" : "allow"; }
const char* Word(bool yes) { return yes ? "yes" : "no"; }
std::string Word(uint64_t number) { return std::to_string(number); }
std::string Word(uint32_t number) { return std::to_string(number); }
std::string Word(const Init& init) {
  static constexpr const char* kNames[] = {"zeros", "constant", "uniform", "normal"};
  std::string text = kNames[static_cast<size_t>(init.kind) % 4];
  if (init.kind == InitKind::kZeros) return text;
  return text + "(" + std::to_string(init.a) + ", " + std::to_string(init.b) + ", seed " +
         std::to_string(init.seed) + ")";
}

template <class T>
void Compare(const char* field, const T& there, const T& asked, std::string* out) {
  if (there == asked) return;
  if (!out->empty()) *out += ", ";
  *out += std::string(field) + " (" + Word(there) + " there, " + Word(asked) + " asked for)";
}

Status Bad(const TableSpec& spec, const std::string& what) {
  return {Code::kInvalidArgument, "table \"" + Printable(spec.name, kMaxNameBytes) + "\": " + what};
}

bool EnumsInRange(const TableSpec& spec) {
  return spec.kind <= TableKind::kSparse && spec.element <= ElementType::kInt64 && spec.mode <= Mode::kSync &&
         spec.optimizer <= OptimizerKind::kSgd && spec.non_finite <= NonFinitePolicy::kAllow &&
         spec.init.kind <= InitKind::kNormal;
}

Status CheckInit(const TableSpec& spec) {
  const Init& init = spec.init;
  if (!std::isfinite(init.a) || !std::isfinite(init.b)) return Bad(spec, "its initial values are not finite");
  if (spec.element == ElementType::kInt64 && init.kind != InitKind::kZeros && init.kind != InitKind::kConstant)
    return Bad(spec, "tables of int64 begin with zeros or a constant");
  if (init.kind == InitKind::kUniform && init.a > init.b)
    return Bad(spec, "uniform initial values need the low end first");
  if (init.kind == InitKind::kNormal && init.b < 0) return Bad(spec, "the standard deviation is negative");
  return Status::Ok();
}

}  // namespace

Status CheckSpec(const TableSpec& spec, uint32_t slot_count) {
  if (spec.name.empty()) return {Code::kInvalidArgument, "a table needs a name"};
  if (spec.name.size() > kMaxNameBytes || !IsPrintable(spec.name))
    return Bad(spec,
               "a name has at most " + std::to_string(kMaxNameBytes) + " bytes and no control characters");
  if (!EnumsInRange(spec)) return Bad(spec, "it asks for something that this version of cairn does not know");
  const uint64_t most = kMaxSlotBytes / (spec.element == ElementType::kFloat32 ? 4 : 8) * slot_count;
  if (spec.kind == TableKind::kDense && (spec.size == 0 || spec.size > most))
    return Bad(spec, "a dense table has 1 to " + std::to_string(most) + " elements in a cluster of " +
                         std::to_string(slot_count) + " slots, not " + std::to_string(spec.size) +
                         ": use several tables, or more slots (--slots)");
  if (spec.kind == TableKind::kSparse && (spec.dim == 0 || spec.dim > kMaxDim))
    return Bad(spec, "a row of a sparse table has 1 to 2^20 elements, not " + std::to_string(spec.dim));
  if (spec.deterministic && spec.mode != Mode::kSync) return Bad(spec, "deterministic needs mode sync");
  if (spec.element == ElementType::kInt64 && spec.optimizer != OptimizerKind::kSum)
    return Bad(spec, "tables of int64 can only sum");
  return CheckInit(spec);
}

std::string DescribeDifference(const TableSpec& there, const TableSpec& asked) {
  std::string out;
  Compare("kind", there.kind, asked.kind, &out);
  Compare("element", there.element, asked.element, &out);
  Compare("mode", there.mode, asked.mode, &out);
  Compare("optimizer", there.optimizer, asked.optimizer, &out);
  Compare("non_finite", there.non_finite, asked.non_finite, &out);
  Compare("deterministic", there.deterministic, asked.deterministic, &out);
  Compare("size", there.size, asked.size, &out);
  Compare("dim", there.dim, asked.dim, &out);
  Compare("init", there.init, asked.init, &out);
  return out;
}

std::string Describe(const TableSpec& spec) {
  std::string text = std::string(Word(spec.kind)) + " " + Word(spec.mode) + " " + Word(spec.optimizer) + ", ";
  if (spec.kind == TableKind::kDense)
    return text + std::to_string(spec.size) + " " + Word(spec.element) + " elements";
  return text + "rows of " + std::to_string(spec.dim) + " " + Word(spec.element);
}

TableId AddTable(DurableState& d, const TableSpec& spec) {
  wire::ClusterState& state = d.state;
  TableId id = state.next_table;
  if (CAIRN_BUG(kTableIdReused)) {
    for (TableId old(1); old < state.next_table; old = old.Next())
      if (state.FindTable(old) == nullptr) id = old;
  }
  auto at = std::find_if(state.tables.begin(), state.tables.end(),
                         [&](const wire::TableInfo& table) { return table.id > id; });
  state.tables.insert(at, {id, spec, state.view});
  state.next_table = std::max(state.next_table, id.Next());
  std::erase(d.dropped_names, spec.name);
  return id;
}

void RemoveTable(DurableState& d, TableId id) {
  const wire::TableInfo* table = d.state.FindTable(id);
  CAIRN_CHECK(table != nullptr);
  d.dropped_names.push_back(table->spec.name);
  if (d.dropped_names.size() > kMaxDroppedNames) d.dropped_names.erase(d.dropped_names.begin());
  std::erase_if(d.state.tables, [&](const wire::TableInfo& t) { return t.id == id; });
}

void RememberOperation(DurableState& d, Incarnation incarnation, uint64_t request, TableId table) {
  d.operations.push_back({incarnation, request, table, d.state.version});
  auto mine = [&](const TableOperation& operation) { return operation.incarnation == incarnation; };
  if (std::count_if(d.operations.begin(), d.operations.end(), mine) >
      static_cast<ptrdiff_t>(kMaxOperationsPerWorker))
    d.operations.erase(std::find_if(d.operations.begin(), d.operations.end(), mine));
}

const TableOperation* FindOperation(const DurableState& d, Incarnation incarnation, uint64_t request) {
  for (const TableOperation& operation : d.operations)
    if (operation.incarnation == incarnation && operation.request == request) return &operation;
  return nullptr;
}

}  // namespace cairn::scheduler
