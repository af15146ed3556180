// The reference model: replays what the shards say they did, in their order, on naive tables, and
// compares every answer to a pull and, at the end, every row with what the shards really hold.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
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

class ReferenceModel final : public Checker {
 public:
  explicit ReferenceModel(Context& context) : Checker("reference-model", context) {}

  void OnPush(const PushEvent& e) override {
    if (e.outcome != server::Outcome::kApplied) return;
    NaiveTable* table = Find(e.table, e.slot);
    const Part* part = context_.facts.Push(e.incarnation, e.slot, e.seq);
    if (table == nullptr || part == nullptr) return;
    const bool sparse = context_.tables.at(e.table.value).spec.kind == TableKind::kSparse;
    if (sparse && part->op() != PushOp::kUpdate)
      return table->AssignRows(e.keys, e.values, part->op() == PushOp::kAssignOnce);
    switch (part->op()) {
      case PushOp::kUpdate: return table->Apply(e.keys, e.values, part->mask, part->hyper());
      case PushOp::kAssign: return table->Assign(e.values, part->mask, part->params.column);
      case PushOp::kAssignOnce:
        if (!table->assigned()) table->Assign(e.values, part->mask, part->params.column);
        return;
    }
  }
  void OnStaged(const StagedEvent& e) override {
    const RoundSaid* said = context_.facts.Said(e.incarnation, e.table, e.round);
    if (e.refused || said == nullptr || !said->parts.contains(e.slot.value)) return;
    const Part& part = said->parts.at(e.slot.value);
    NaiveContribution c;
    c.rank = context_.ranks[e.incarnation.value];
    c.weight = e.weight;
    c.value_scale = part.params.value_scale;
    c.op = part.op();
    c.keys.assign(e.keys.begin(), e.keys.end());
    c.values.assign(e.values.begin(), e.values.end());
    c.mask = part.mask;
    staged_[{e.table.value, e.slot.value, e.round.value}].push_back(std::move(c));
  }
  // What the first phase tells must be the sum of squares of the mean, and finite if that is.
  void OnSummedUp(const SummedUpEvent& e) override {
    SlotReport& report = context_.reports[{e.table.value, e.round.value}][e.slot.value];
    report = {};
    for (const server::Contributor& c : e.contributors) {
      const RoundSaid* said = context_.facts.Said(c.incarnation, e.table, e.round);
      report.finite &= said == nullptr || !said->not_finite();
    }
    NaiveTable* table = Find(e.table, e.slot);
    auto staged = staged_.find({e.table.value, e.slot.value, e.round.value});
    if (table == nullptr || staged == staged_.end() || !(e.divisor > 0)) return;
    InOrder(e.table, staged->second);
    report.sum_squares = table->SumSquares(staged->second, e.divisor);
    report.finite &= std::isfinite(report.sum_squares);
  }
  void OnClosed(const ShardName&, const server::CloseRecord& record) override {
    NaiveTable* table = Find(record.table, record.slot);
    auto staged = staged_.extract({record.table.value, record.slot.value, record.round.value});
    const bool applies = record.outcome == Code::kOk && record.divisor > 0 && !record.skipped;
    if (table == nullptr || !applies) return;
    if (record.op == PushOp::kUpdate) table->CountRound(record.hyper);
    if (staged.empty()) return;
    InOrder(record.table, staged.mapped());
    if (record.op == PushOp::kUpdate) {
      table->ApplyRound(staged.mapped(), record.hyper, record.divisor, record.scale);
    } else {
      table->AssignRound(staged.mapped(), record.column, record.divisor);
    }
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
          if (context_.OwnerOf(SlotId(s)) == name) CompareSlot(*shard, table, SlotId(s));
        }
      }
    }
  }

 private:
  struct Asked {
    std::vector<RowKey> keys;
    uint8_t column = 0;
  };

  // As the shards sum them.
  void InOrder(TableId table, std::vector<NaiveContribution>& contributions) {
    if (!context_.tables.at(table.value).spec.deterministic) return;
    std::stable_sort(contributions.begin(), contributions.end(),
                     [](const auto& a, const auto& b) { return a.rank < b.rank; });
  }

  NaiveTable* Find(TableId id, SlotId slot) {
    auto it = tables_.find({id.value, slot.value});
    if (it != tables_.end()) return &it->second;
    auto info = context_.tables.find(id.value);
    if (info == context_.tables.end()) return nullptr;
    const auto slots = static_cast<uint32_t>(context_.durable.slots.size());
    return &tables_.try_emplace({id.value, slot.value}, info->second, slot, slots).first->second;
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
                  NaiveTable* table = Find(id, SlotId(e.slot));
                  if (table == nullptr) return;
                  if (asked.column == kKeyColumn) return CompareKeys(id, e, *table, values);
                  if (e.count == 0) return;
                  const size_t rows = part.empty() ? 1 : part.size();
                  const size_t row_bytes = values.size() / rows;
                  for (size_t i = 0; i < rows; ++i) {
                    const RowKey key = part.empty() ? 0 : part[i];
                    const auto found = values.subspan(i * row_bytes, row_bytes);
                    if (!std::ranges::equal(table->Read(key, asked.column), found)) {
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

  void CompareSlot(const server::Shard& shard, const wire::TableInfo& info, SlotId slot) {
    NaiveTable* table = Find(info.id, slot);
    if (table == nullptr) return;
    const std::string where = "table \"" + info.spec.name + "\" slot " + std::to_string(slot.value);
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

  std::map<std::pair<uint32_t, uint32_t>, NaiveTable> tables_;
  std::map<std::tuple<uint32_t, uint32_t, uint64_t>, std::vector<NaiveContribution>> staged_;
  std::map<std::pair<uint64_t, uint64_t>, Asked> asked_;  // by (incarnation, request)
  std::map<std::tuple<uint32_t, uint32_t, RowKey>, std::set<uint64_t>> served_;
};

}  // namespace

CheckerPtr MakeReferenceModel(Context& context) { return std::make_unique<ReferenceModel>(context); }

}  // namespace cairn::sim
