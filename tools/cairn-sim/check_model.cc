// The reference model: replays what the shards say they did, in their order, on naive tables, and
// compares every answer to a pull and, at the end, every row with what the shards really hold.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <xxhash.h>

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
    if (NaiveTable* table = Find(e.table, e.slot)) table->Apply(e.keys, e.values, e.hyper);
  }
  void OnStaged(const StagedEvent& e) override {
    if (e.refused) return;
    NaiveContribution c;
    c.rank = context_.ranks[e.incarnation.value];
    c.weight = e.weight;
    c.keys.assign(e.keys.begin(), e.keys.end());
    c.values.assign(e.values.begin(), e.values.end());
    staged_[{e.table.value, e.slot.value, e.round.value}].push_back(std::move(c));
  }
  void OnClosed(const ShardName&, const server::CloseRecord& record) override {
    NaiveTable* table = Find(record.table, record.slot);
    auto staged = staged_.extract({record.table.value, record.slot.value, record.round.value});
    if (table == nullptr || staged.empty() || record.outcome != Code::kOk || !(record.divisor > 0)) return;
    auto& contributions = staged.mapped();
    if (context_.tables.at(record.table.value).spec.deterministic) {
      std::stable_sort(contributions.begin(), contributions.end(),
                       [](const auto& a, const auto& b) { return a.rank < b.rank; });
    }
    table->ApplyRound(contributions, record.hyper, record.divisor);
  }

  void OnDataSent(const Actor& from, const Actor*, const wire::FrameHeader& header,
                  std::span<const std::byte> body) override {
    if (from.role == wire::Role::kWorker) return Remember(header, body);
    const bool values =
        header.type == wire::FrameType::kPullReply || header.type == wire::FrameType::kRoundReply;
    if (!values || (header.flags & wire::kFlagRefused) != 0 || header.entry_count == 0) return;
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
        CheckServed(end, slot, end.keys[i], XXH3_64bits(end.out.data() + i * row, row));
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
      if (!row.empty()) CheckServed(end, SlotId(s), 0, XXH3_64bits(row.data(), row.size()));
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
  using Keys = std::vector<RowKey>;

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
    if (header.type == wire::FrameType::kPull) {
      const auto pull = wire::DecodePull(header, body);
      if (pull.ok())
        asked_[{header.incarnation, header.request_id}].assign(pull->keys.begin(), pull->keys.end());
    } else if (after && header.type == wire::FrameType::kContribute) {
      const auto push = wire::DecodePush(header, body);
      if (push.ok())
        asked_[{header.incarnation, header.request_id}].assign(push->keys.begin(), push->keys.end());
    }
  }

  void CompareAnswer(TableId id, const wire::ValuesView& reply, const Keys& keys) {
    ForEachPart(reply.entries, keys, reply.values, [&](const wire::SlotEntry& e, auto part, auto values) {
      NaiveTable* table = Find(id, SlotId(e.slot));
      if (table == nullptr || e.count == 0) return;
      const size_t rows = part.empty() ? 1 : part.size();
      const size_t row_bytes = values.size() / rows;
      for (size_t i = 0; i < rows; ++i) {
        const RowKey key = part.empty() ? 0 : part[i];
        const auto found = values.subspan(i * row_bytes, row_bytes);
        if (!std::ranges::equal(table->Read(key), found)) {
          return Violation("a pull of table " + std::to_string(id.value) + ", slot " +
                           std::to_string(e.slot) + ", key " + std::to_string(key) +
                           " is answered with other values than the model has");
        }
        served_[{id.value, e.slot, key}].insert(XXH3_64bits(found.data(), found.size()));
      }
    });
  }

  void CheckServed(const CallEnd& end, SlotId slot, RowKey key, uint64_t hash) {
    if (served_[{end.info->id.value, slot.value, key}].contains(hash)) return;
    Violation("worker " + std::to_string(end.worker) + " reads values of table " +
              std::to_string(end.info->id.value) + ", slot " + std::to_string(slot.value) + ", key " +
              std::to_string(key) + " that no shard has sent");
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
  std::map<std::pair<uint64_t, uint64_t>, Keys> asked_;  // by (incarnation, request)
  std::map<std::tuple<uint32_t, uint32_t, RowKey>, std::set<uint64_t>> served_;
};

}  // namespace

CheckerPtr MakeReferenceModel(Context& context) { return std::make_unique<ReferenceModel>(context); }

}  // namespace cairn::sim
