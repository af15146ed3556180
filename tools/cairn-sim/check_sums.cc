// The accounts: at the end, what lies in the servers' memory equals the sum of what was sent, of a
// prefix per worker and slot that includes all that was acknowledged. Integers, so exactly.
#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "checkers.h"

namespace cairn::sim {

namespace {

// (table, slot, key or, in dense tables, 0) → sums of the columns.
using Sums = std::map<std::tuple<uint32_t, uint32_t, RowKey>, std::vector<uint64_t>>;

class ExactSums final : public Checker {
 public:
  explicit ExactSums(Context& context) : Checker("exact-sums", context) {}

  void OnPush(const PushEvent& e) override {
    Reached& reached = reached_[{e.incarnation.value, e.slot.value}];
    if (e.outcome == server::Outcome::kApplied) reached.applied = std::max(reached.applied, e.seq.value);
    if (e.outcome == server::Outcome::kRefused) {
      reached.applied = std::max(reached.applied, e.seq.value);
      reached.refused.insert(e.seq.value);
    }
  }
  void OnAcknowledged(SlotId slot, Incarnation incarnation, Seq seq) override {
    Reached& reached = reached_[{incarnation.value, slot.value}];
    reached.acknowledged = std::max(reached.acknowledged, seq.value);
  }
  void OnClosed(const ShardName&, const server::CloseRecord& record) override {
    const auto table = context_.tables.find(record.table.value);
    if (table == context_.tables.end() || table->second.spec.element != ElementType::kInt64) return;
    if (record.outcome != Code::kOk || record.skipped || !(record.divisor > 0)) return;
    for (const server::Contributor& c : record.contributors) {
      if (!c.gradient || c.refused) continue;
      const RoundSaid* said = context_.facts.Said(c.incarnation, record.table, record.round);
      if (said == nullptr || !said->parts.contains(record.slot.value)) {
        Violation("incarnation " + std::to_string(c.incarnation.value) +
                  " counts in a round it said nothing about");
        continue;
      }
      Add(expected_, record.slot.value, said->parts.at(record.slot.value));
    }
  }

  void ForgetSlot(SlotId slot) override {
    std::erase_if(expected_, [&](const auto& entry) { return std::get<1>(entry.first) == slot.value; });
    for (auto& [stream, reached] : reached_) {
      if (stream.second != slot.value) continue;
      reached.applied = 0;
      reached.refused.clear();
    }
  }

  void AtEnd() override {
    for (const auto& [stream, reached] : reached_) {
      if (reached.acknowledged > reached.applied) {
        Violation("slot " + std::to_string(stream.second) + " has " + std::to_string(reached.applied) +
                  " pushes of incarnation " + std::to_string(stream.first) + " and acknowledged " +
                  std::to_string(reached.acknowledged));
      }
    }
    for (const auto& [stream, numbered] : context_.facts.pushes()) {
      const Reached& reached = reached_[{stream.first, stream.second}];
      for (const auto& [seq, part] : numbered) {
        if (seq <= reached.applied && !reached.refused.contains(seq)) Add(expected_, stream.second, part);
      }
    }
    Compare();
  }

 private:
  struct Reached {
    uint64_t applied = 0, acknowledged = 0;
    std::set<uint64_t> refused;
  };

  void Add(Sums& sums, uint32_t slot, const Part& part) {
    const auto table = context_.tables.find(part.table.value);
    if (table == context_.tables.end() || table->second.spec.element != ElementType::kInt64) return;
    const size_t rows = part.keys.empty() ? 1 : part.keys.size();
    const size_t width = part.values.size() / 8 / rows;
    for (size_t r = 0; r < rows; ++r) {
      auto& row = sums[{part.table.value, slot, part.keys.empty() ? 0 : part.keys[r]}];
      row.resize(width);
      for (size_t i = 0; i < width; ++i) {
        uint64_t value = 0;
        std::memcpy(&value, part.values.data() + (r * width + i) * 8, 8);
        row[i] += value;
      }
    }
  }

  void Compare() {
    for (const auto& [name, shard] : context_.shards) {
      const auto& state = context_.shard_states[name];
      if (!state) continue;
      for (const wire::TableInfo& table : state->tables) {
        if (table.spec.element != ElementType::kInt64) continue;
        for (uint32_t s = 0; s < state->slots.size(); ++s) {
          if (context_.IsAtEnd(name, SlotId(s))) CompareSlot(*shard, table, s);
        }
      }
    }
  }
  void CompareSlot(const server::Shard& shard, const wire::TableInfo& table, uint32_t slot) {
    Sums found;
    shard.ForEachRow(table.id, SlotId(slot), [&](RowKey key, std::span<const std::byte> bytes) {
      auto& row = found[{table.id.value, slot, key}];
      row.resize(bytes.size() / 8);
      if (!bytes.empty()) std::memcpy(row.data(), bytes.data(), bytes.size());
    });
    const std::string where = "table \"" + table.spec.name + "\" slot " + std::to_string(slot);
    for (auto it = expected_.lower_bound({table.id.value, slot, 0}); it != expected_.end(); ++it) {
      if (std::get<0>(it->first) != table.id.value || std::get<1>(it->first) != slot) break;
      auto row = found.find(it->first);
      if (row == found.end()) {
        Violation(where + " lacks key " + std::to_string(std::get<2>(it->first)));
      } else if (row->second != it->second) {
        Violation(where + " key " + std::to_string(std::get<2>(it->first)) + " has count " +
                  std::to_string(row->second[0]) + ", sent and applied were " +
                  std::to_string(it->second[0]));
      }
    }
    for (const auto& [key, row] : found) {
      if (table.spec.kind == TableKind::kSparse && !expected_.contains(key)) {
        Violation(where + " has key " + std::to_string(std::get<2>(key)) + ", which nobody pushed");
      }
    }
  }

  std::map<std::pair<uint64_t, uint32_t>, Reached> reached_;  // by (incarnation, slot)
  Sums expected_;
};

}  // namespace

CheckerPtr MakeExactSums(Context& context) { return std::make_unique<ExactSums>(context); }

}  // namespace cairn::sim
