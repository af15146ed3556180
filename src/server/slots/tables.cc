#include "server/slots/tables.h"

#include "base/check.h"

namespace cairn::server {
namespace {
constexpr int64_t kAgeEveryUs = 1'000'000;

// Whoever takes part, and the slots, are what they were: a table that was there before needs no look.
bool SameButTables(const wire::ClusterState& a, const wire::ClusterState& b) {
  return a.slots == b.slots && a.servers == b.servers && a.workers == b.workers && a.view == b.view &&
         a.views == b.views;
}
}  // namespace

std::vector<TableId> Tables::Update(const wire::ClusterState* before) {
  std::vector<TableId> dropped = Drop();
  const wire::ClusterState& state = context_.state();
  const bool only_new = before != nullptr && SameButTables(*before, state);
  auto next = tables_.begin();
  for (const wire::TableInfo& info : state.tables) {
    const bool is_new = next == tables_.end() || next->first != info.id;  // both are by id
    if (is_new) next = tables_.try_emplace(next, info.id);
    TableState& table = next++->second;
    if (only_new && !is_new) continue;
    if (is_new) table.info = info;  // what a table is never changes
    table.rows.resize(slots_.size());
    updates_ += slots_.size();
    for (uint32_t local = 0; local < slots_.size(); ++local) {
      if (!slots_[local].present()) {
        table.rows[local].reset();
      } else if (!table.rows[local]) {
        MakeRows(table, local);
        weights_.Add(local, table.sparse(), *table.rows[local]);
      }
    }
    if (table.sync()) table.rounds.Update(state, table.info, slots_);
    if (table.bounded()) table.clocks.SetWorkers(state);
  }
  return dropped;
}

std::vector<TableId> Tables::Drop() {
  std::vector<TableId> dropped;
  for (auto it = tables_.begin(); it != tables_.end();) {
    if (context_.state().FindTable(it->first) != nullptr) {
      ++it;
      continue;
    }
    dropped.push_back(it->first);
    dropped_.Add(it->first, it->second.info.spec);
    it = tables_.erase(it);
  }
  return dropped;
}

TableState* Tables::Find(TableId id) {
  auto it = tables_.find(id);
  return it == tables_.end() ? nullptr : &it->second;
}

const TableState* Tables::Find(TableId id) const {
  auto it = tables_.find(id);
  return it == tables_.end() ? nullptr : &it->second;
}

Status Tables::Find(TableId id, TableState** table) {
  *table = Find(id);
  if (*table != nullptr || (id < context_.state().next_table && id != TableId{0})) return Status::Ok();
  return {Code::kInvalidArgument, "there never was a table " + std::to_string(id.value)};
}

const TableSpec* Tables::SpecOf(TableId id) const {
  const TableState* table = Find(id);
  return table != nullptr ? &table->info.spec : dropped_.Find(id);
}

void Tables::MakeRows(TableState& table, uint32_t local, table::SlotTable::Purpose purpose) {
  CAIRN_CHECK(slots_[local].present() && local < table.rows.size());
  table.rows[local] = table::SlotTable::Make(
      table.info, slots_[local].id, static_cast<uint32_t>(context_.state().slots.size()), arena_, purpose);
}

void Tables::AgeHotRows() {
  if (context_.now_us() - hot_aged_us_ < kAgeEveryUs) return;
  hot_aged_us_ = context_.now_us();
  for (auto& [id, table] : tables_) table.hot.Age();
}

const RowWeights& Tables::Weigh() const {
  if (!weights_.Due(tables_.size() * slots_.size(), context_.now_us())) return weights_;
  weights_.Begin(context_.now_us());
  for (const auto& [id, table] : tables_)
    for (uint32_t local = 0; local < table.rows.size(); ++local)
      if (table.rows[local]) weights_.Add(local, table.sparse(), *table.rows[local]);
  return weights_;
}

std::vector<wire::SlotLoad> Tables::loads() const {
  std::vector<wire::SlotLoad> loads;
  const RowWeights& weights = Weigh();
  for (uint32_t local = 0; local < slots_.size(); ++local) {
    const OwnedSlot& slot = slots_[local];
    if (!slot.primary()) continue;
    loads.push_back({slot.id.value, weights.content_bytes(local), slot.work.requests, slot.work.pushed,
                     slot.work.pulled});
  }
  return loads;
}

HotReport Tables::hot_rows() const {
  HotReport report;
  for (const auto& [id, table] : tables_)
    if (const auto total = static_cast<uint64_t>(table.hot.total()); total > 0)
      report.sampled.push_back({id, total});
  BoundHotReport(report);
  for (const wire::SampledTable& sampled : report.sampled)
    for (const HotRows::Row& row : tables_.at(sampled.table).hot.Hottest(kHotRowsOfATable))
      report.rows.push_back({sampled.table, row.key, static_cast<uint64_t>(row.count)});
  BoundHotReport(report);
  return report;
}

}  // namespace cairn::server
