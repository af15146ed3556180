#include "server/replication/slot_content.h"

#include <set>

#include "base/planted.h"
#include "base/random.h"

namespace cairn::server {

void SlotContent::Save(uint32_t local, ByteWriter& out) const {
  out.Put(uint64_t{tables_.all().size()});
  for (const auto& [id, table] : tables_.all()) {
    out.Put(id.value);
    ByteWriter content;
    table.rows[local]->Save(content);
    out.PutBytes(content.bytes());
    ByteWriter round;
    if (table.sync()) table.rounds[local].Save(round);
    out.PutBytes(round.bytes());
  }
  const wire::ClusterState& state = context_.state();
  out.Put(uint64_t{state.workers.size()});
  for (const wire::WorkerInfo& worker : state.workers) {
    out.Put(worker.incarnation.value);
    const LiveClient* client = clients_.Find(worker.incarnation);
    slots_[local].numbers.Save(client != nullptr ? client->index : ClientIndex{~uint32_t{0}}, out);
  }
}

void SlotContent::Clear(uint32_t local) {
  OwnedSlot& slot = slots_[local];
  slot.numbers.Clear();
  slot.ForgetIndex();
  for (auto& [id, table] : tables_.all()) {
    if (local >= table.rows.size()) continue;
    table.rows[local].reset();
    if (slot.present()) tables_.MakeRows(table, local, table::SlotTable::Purpose::kToLoad);
    if (local < table.rounds.size()) table.rounds[local] = SlotRound();
  }
}

bool SlotContent::Load(uint32_t local, std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  std::set<TableId> loaded;
  for (uint64_t n = in.GetCount(20); n > 0; --n) {
    const TableId id{in.Get<uint32_t>()};
    const auto content = in.GetBytes(), round = in.GetBytes();
    if (!in.ok()) return false;
    TableState* table = tables_.Find(id);
    if (table == nullptr) continue;  // dropped meanwhile
    table::SlotTable& rows = *table->rows[local];
    ByteReader rows_in(content), round_in(round);
    loaded.insert(id);
    if (!rows.Load(rows_in)) return false;
    if (!table->sync()) continue;
    SlotRound& here = table->rounds[local];
    if (!here.Load(round_in)) return false;
    // What is only staged is not replicated: its workers send it again if this becomes the primary.
    if (rows.staged() && here.summed() == nullptr) rows.DropStaged();
  }
  for (auto& [id, table] : tables_.all())  // made since the copy
    if (!loaded.contains(id)) tables_.MakeRows(table, local);
  for (uint64_t n = in.GetCount(24); n > 0; --n) {
    const LiveClient* client = clients_.Find(Incarnation{in.Get<uint64_t>()});
    if (CAIRN_BUG(kCopyWithoutNumbers)) client = nullptr;
    if (!slots_[local].numbers.Load(client != nullptr ? &client->index : nullptr, in)) return false;
  }
  return in.at_end();
}

uint64_t SlotContent::TablesMark() const {
  uint64_t mark = 0;
  for (const auto& [id, table] : tables_.all()) mark = Mix64(mark, id.value);
  return mark;
}

uint64_t SlotContent::Hash(uint32_t local) const {
  if (local == OwnedSlots::kNotHere || !slots_[local].present()) return 0;
  uint64_t hash = 0;
  for (const auto& [id, table] : tables_.all()) {
    hash = Mix64(hash, id.value);
    hash = Mix64(hash, table.rows[local]->Hash());
    if (table.sync()) hash = Mix64(hash, table.rounds[local].open().value);
  }
  return hash;
}

uint64_t SlotContent::Bytes(uint32_t local) const {
  uint64_t bytes = 0;
  for (const auto& [id, table] : tables_.all())
    if (table.rows[local]) bytes += table.rows[local]->content_bytes();
  return bytes;
}

}  // namespace cairn::server
