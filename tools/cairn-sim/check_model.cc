// The reference model: replays what the shards say they did, in their order, on naive tables, and
// compares every answer to a pull and, at the end, every row with what the owners really hold.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <xxhash.h>

#include "base/random.h"
#include "checkers.h"
#include "naive_table.h"
#include "wire/data.h"

namespace cairn::sim {

namespace {

// Every table of a slot as it was after each operation on it, in every branch of the slot's history:
// answers are sent later than they are made, and by shards that have been replaced.
class Versions {
 public:
  using TablePtr = std::shared_ptr<const NaiveTable>;
  explicit Versions(const Context& context) : context_(context) {}

  // Null where nobody remembers, or there never was such a table.
  TablePtr At(TableId table, SlotId slot, Position at) {
    const auto& branches = tables_[{table.value, slot.value}];
    uint64_t limit = at.index();
    for (uint64_t epoch = at.epoch(); epoch != 0;) {
      auto branch = branches.find(epoch);
      if (branch != branches.end()) {
        const auto& made = branch->second.made;
        for (auto it = made.rbegin(); it != made.rend(); ++it)
          if (it->first <= limit) return it->second;
        if (branch->second.forgotten && limit >= branch->second.first) return nullptr;
      }
      const Position parent = context_.history.ParentOf(slot, epoch);
      limit = std::min(limit, parent.index());
      epoch = parent.epoch();
    }
    return Initial(table, slot);
  }
  TablePtr Newest(TableId table, SlotId slot) { return At(table, slot, context_.history.End(slot)); }
  // A copy of how it was before the operation at `at`, to be changed; it is the one after it.
  NaiveTable* Change(TableId table, SlotId slot, Position at) {
    const TablePtr before = At(table, slot, Position::Of(at.epoch(), at.index() - 1));
    if (before == nullptr) return nullptr;
    auto after = std::make_shared<NaiveTable>(*before);
    Branch& branch = tables_[{table.value, slot.value}][at.epoch()];
    if (branch.made.empty()) branch.first = at.index();
    branch.made.emplace_back(at.index(), after);
    if (branch.made.size() > kMostKept) {
      branch.made.erase(branch.made.begin(), branch.made.begin() + kMostKept / 4);
      branch.forgotten = true;
    }
    return after.get();
  }

 private:
  static constexpr size_t kMostKept = 400;
  struct Branch {
    std::vector<std::pair<uint64_t, TablePtr>> made;  // by index
    uint64_t first = 0;
    bool forgotten = false;
  };
  TablePtr Initial(TableId table, SlotId slot) {
    TablePtr& initial = initial_[{table.value, slot.value}];
    auto info = context_.tables.find(table.value);
    if (initial == nullptr && info != context_.tables.end()) {
      initial = std::make_shared<NaiveTable>(info->second, slot,
                                             static_cast<uint32_t>(context_.durable.slots.size()));
    }
    return initial;
  }
  const Context& context_;
  std::map<std::pair<uint32_t, uint32_t>, std::map<uint64_t, Branch>> tables_;  // (table, slot), epoch
  std::map<std::pair<uint32_t, uint32_t>, TablePtr> initial_;
};

class ReferenceModel final : public Checker {
 public:
  explicit ReferenceModel(Context& context) : Checker("reference-model", context), tables_(context) {}

  void OnOperation(const Op& op) override {
    switch (op.kind) {
      case Op::Kind::kPush: return Push(op);
      case Op::Kind::kSumUp:
        sums_[{op.slot.value, op.position.epoch(), op.position.index()}] = Contributions(op.staged);
        return;
      case Op::Kind::kClose: return Close(op);
    }
  }
  // What the first phase tells must be the sum of squares of the mean, and finite if that is.
  void OnSummedUp(const SummedUpEvent& e) override {
    SlotReport& report = context_.reports[{e.table.value, e.round.value}][e.slot.value];
    report = {};
    for (const server::Contributor& c : e.contributors) {
      const RoundSaid* said = context_.facts.Said(c.incarnation, e.table, e.round);
      report.finite &= said == nullptr || !said->not_finite();
    }
    const auto table = tables_.Newest(e.table, e.slot);
    std::vector<NaiveContribution> staged = Contributions(e.staged);
    if (table == nullptr || staged.empty() || !(e.divisor > 0)) return;
    InOrder(e.table, staged);
    report.sum_squares = table->SumSquares(staged, e.divisor);
    report.finite &= std::isfinite(report.sum_squares);
  }
  void ForgetSlot(SlotId slot) override {
    for (auto& [id, slots] : context_.reports) slots.erase(slot.value);
  }

  void OnDataSent(const Actor& from, const Actor*, const wire::FrameHeader& header,
                  std::span<const std::byte> body) override {
    if (from.role == wire::Role::kWorker) return Remember(header, body);
    const bool values =
        header.type == wire::FrameType::kPullReply || header.type == wire::FrameType::kRoundReply;
    if (!values || (header.flags & (wire::kFlagRefused | wire::kFlagReport)) != 0) return;
    if (header.entry_count == 0) return;
    auto asked = asked_.find({header.incarnation, header.request_id});
    if (asked == asked_.end()) return Violation("an answer to a pull that nobody asked for");
    const auto reply = wire::DecodeValues(header, body);
    if (!reply.ok()) return Violation("values that can't be read: " + reply.status().ToString());
    CompareAnswer(TableId(header.table), *reply, asked->second);
  }

  // What a caller finds in its array is something that a shard has sent.
  void OnCallEnd(const CallEnd& end) override {
    if (!end.status.ok() || end.out.empty()) return;
    const auto slot_count = static_cast<uint32_t>(context_.durable.slots.size());
    const size_t element = end.info->spec.element == ElementType::kInt64 ? 8 : 4;
    if (end.info->spec.kind == TableKind::kSparse) {
      const size_t row = end.info->spec.dim * element;
      for (size_t i = 0; i < end.keys.size(); ++i) {
        const SlotId slot = wire::SlotOfKey(end.keys[i], slot_count);
        CheckServed(end, slot, Mix64(end.keys[i], end.column), XXH3_64bits(end.out.data() + i * row, row));
      }
      return;
    }
    const auto runs = RunsBySlot(wire::DenseLayout::Of(end.info->id, end.info->spec.size, slot_count));
    for (uint32_t s = 0; s < runs.size(); ++s) {
      NaiveTable::Row row;
      for (const wire::DenseRun& run : runs[s]) {
        const auto piece = end.out.subspan(run.begin * element, run.count * element);
        row.insert(row.end(), piece.begin(), piece.end());
      }
      if (!row.empty()) CheckServed(end, SlotId(s), end.column, XXH3_64bits(row.data(), row.size()));
    }
  }

  void AtEnd() override {
    for (const auto& [name, shard] : context_.shards) {
      const auto& state = context_.shard_states[name];
      if (!state) continue;
      for (const wire::TableInfo& table : state->tables) {
        for (uint32_t s = 0; s < state->slots.size(); ++s) {
          if (context_.IsAtEnd(name, SlotId(s))) CompareSlot(name, *shard, table, SlotId(s));
        }
      }
    }
  }

 private:
  struct Asked {
    std::vector<RowKey> keys;
    uint8_t column = 0;
  };

  void Push(const Op& op) {
    const Part* part = context_.facts.Push(op.incarnation, op.slot, op.seq);
    if (op.outcome != server::Outcome::kApplied || part == nullptr) return;
    NaiveTable* table = tables_.Change(op.table, op.slot, op.position);
    if (table == nullptr) return;
    const bool sparse = context_.tables.at(op.table.value).spec.kind == TableKind::kSparse;
    if (sparse && part->op() != PushOp::kUpdate)
      return table->AssignRows(op.keys, op.values, part->params.column, part->op() == PushOp::kAssignOnce);
    switch (part->op()) {
      case PushOp::kUpdate: return table->Apply(op.keys, op.values, part->mask, part->hyper());
      case PushOp::kAssign: return table->Assign(op.values, part->mask, part->params.column);
      case PushOp::kAssignOnce:
        if (!table->assigned()) table->Assign(op.values, part->mask, part->params.column);
        return;
    }
  }

  void Close(const Op& op) {
    const server::CloseRecord& record = *op.record;
    const bool applies = record.outcome == Code::kOk && record.divisor > 0 && !record.skipped;
    if (!applies) return;
    std::vector<NaiveContribution> staged = Contributions(op.staged);
    if (record.two_phase) {
      const uint64_t sum =
          context_.history.FindSumUp(op.slot, op.position.epoch(), record.table, record.round);
      const uint64_t made_in = context_.history.MadeIn(op.slot, Position::Of(op.position.epoch(), sum));
      staged = sums_[{op.slot.value, made_in, sum}];
    }
    NaiveTable* table = tables_.Change(record.table, op.slot, op.position);
    if (table == nullptr) return;
    if (record.op == PushOp::kUpdate) table->CountRound(record.hyper);
    if (staged.empty()) return;
    InOrder(record.table, staged);
    if (record.op == PushOp::kUpdate) {
      table->ApplyRound(staged, record.hyper, record.divisor, record.scale);
    } else {
      table->AssignRound(staged, record.column, record.divisor);
    }
  }

  std::vector<NaiveContribution> Contributions(const std::vector<StagedPart>& parts) {
    std::vector<NaiveContribution> all;
    for (const StagedPart& e : parts) {
      const RoundSaid* said = context_.facts.Said(e.incarnation, e.table, e.round);
      if (e.refused || said == nullptr || !said->parts.contains(e.slot.value)) continue;
      const Part& part = said->parts.at(e.slot.value);
      NaiveContribution c;
      c.rank = context_.ranks[e.incarnation.value];
      c.weight = e.weight;
      c.value_scale = part.params.value_scale;
      c.op = part.op();
      c.keys = e.keys;
      c.values = e.values;
      c.mask = part.mask;
      all.push_back(std::move(c));
    }
    return all;
  }

  // As the shards sum them.
  void InOrder(TableId table, std::vector<NaiveContribution>& contributions) {
    if (!context_.tables.at(table.value).spec.deterministic) return;
    std::stable_sort(contributions.begin(), contributions.end(),
                     [](const auto& a, const auto& b) { return a.rank < b.rank; });
  }

  void Remember(const wire::FrameHeader& header, std::span<const std::byte> body) {
    const bool after = (header.flags & wire::kFlagPullAfter) != 0;
    const bool round = header.type == wire::FrameType::kContribute || header.type == wire::FrameType::kDone;
    Asked asked;
    if (header.type == wire::FrameType::kPull) {
      const auto pull = wire::DecodePull(header, body);
      if (!pull.ok()) return;
      asked.keys.assign(pull->keys.begin(), pull->keys.end());
      if (!pull->entries.empty()) asked.column = static_cast<uint8_t>(pull->entries[0].number);
    } else if (after && round) {
      const auto push = wire::DecodePush(header, body);
      if (!push.ok()) return;
      asked.keys.assign(push->keys.begin(), push->keys.end());
    } else {
      return;
    }
    asked_[{header.incarnation, header.request_id}] = std::move(asked);
  }

  void CompareAnswer(TableId id, const wire::ValuesView& reply, const Asked& asked) {
    ForEachPart(reply.entries, asked.keys, reply.values,
                [&](const wire::SlotEntry& e, auto part, auto values) {
                  const auto table = tables_.At(id, SlotId(e.slot), Position{e.number});
                  if (table == nullptr) return;
                  if (asked.column == kKeyColumn) return CompareKeys(id, e, *table, values);
                  if (e.count == 0) return;
                  const size_t rows = part.empty() ? 1 : part.size();
                  const size_t row_bytes = values.size() / rows;
                  for (size_t i = 0; i < rows; ++i) {
                    const RowKey key = part.empty() ? 0 : part[i];
                    const auto found = values.subspan(i * row_bytes, row_bytes);
                    if (!std::ranges::equal(table->Answer(key, asked.column), found)) {
                      return Violation("a pull of table " + std::to_string(id.value) + ", slot " +
                                       std::to_string(e.slot) + ", key " + std::to_string(key) + ", column " +
                                       std::to_string(asked.column) +
                                       " is answered with other values than the model has");
                    }
                    // Dense tables have columns in the place of keys.
                    const uint64_t what = part.empty() ? asked.column : Mix64(key, asked.column);
                    served_[{id.value, e.slot, what}].insert(XXH3_64bits(found.data(), found.size()));
                  }
                });
  }

  // The keys that exist, each once, in any order.
  void CompareKeys(TableId id, const wire::SlotEntry& entry, const NaiveTable& table,
                   std::span<const std::byte> values) {
    std::vector<RowKey> told(values.size() / sizeof(RowKey)), wanted;
    if (!told.empty()) std::memcpy(told.data(), values.data(), values.size());
    std::ranges::sort(told);
    for (const auto& [key, row] : table.rows()) wanted.push_back(key);
    if (told == wanted) return;
    Violation("slot " + std::to_string(entry.slot) + " of table " + std::to_string(id.value) + " tells " +
              std::to_string(told.size()) + " keys, not those of the " + std::to_string(wanted.size()) +
              " rows that the model has");
  }

  void CheckServed(const CallEnd& end, SlotId slot, RowKey key, uint64_t hash) {
    if (served_[{end.info->id.value, slot.value, key}].contains(hash)) return;
    Violation("worker " + std::to_string(end.worker) + " reads values of table " +
              std::to_string(end.info->id.value) + ", slot " + std::to_string(slot.value) + ", column " +
              std::to_string(end.column) + " that no shard has sent");
  }

  void CompareSlot(const ShardName& name, const server::Shard& shard, const wire::TableInfo& info,
                   SlotId slot) {
    const auto table = tables_.Newest(info.id, slot);
    if (table == nullptr) return;
    const std::string where =
        ToString(name) + ": table \"" + info.spec.name + "\" slot " + std::to_string(slot.value);
    size_t rows = 0;
    shard.ForEachRow(info.id, slot, [&](RowKey key, std::span<const std::byte> bytes) {
      ++rows;
      auto it = table->rows().find(key);
      if (it == table->rows().end()) {
        Violation(where + " stores key " + std::to_string(key) + ", which nothing has created");
      } else if (!std::ranges::equal(it->second, bytes)) {
        Violation(where + " key " + std::to_string(key) + " differs from the model");
      }
    });
    if (rows != table->rows().size())
      Violation(where + " stores " + std::to_string(rows) + " rows, the model has " +
                std::to_string(table->rows().size()));
  }

  Versions tables_;
  std::map<std::tuple<uint32_t, uint64_t, uint64_t>, std::vector<NaiveContribution>> sums_;  // by position
  std::map<std::pair<uint64_t, uint64_t>, Asked> asked_;  // by (incarnation, request)
  std::map<std::tuple<uint32_t, uint32_t, RowKey>, std::set<uint64_t>> served_;
};

}  // namespace

CheckerPtr MakeReferenceModel(Context& context) { return std::make_unique<ReferenceModel>(context); }

}  // namespace cairn::sim
