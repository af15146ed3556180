// A whole slot as bytes and back (docs/internals/consistency.md, rule 43): every table's rows and rounds, and the
// sequence numbers with their refusals. And the hash that owners compare (rule 51).
#include <set>

#include "base/planted.h"
#include "base/random.h"
#include "server/shard/shard_impl.h"

namespace cairn::server {

void ShardImpl::SaveSlot(uint32_t local, ByteWriter& out) const {
  out.Put(uint64_t{tables_.size()});
  for (const auto& [id, table] : tables_) {
    out.Put(id.value);
    ByteWriter content;
    table.rows[local]->Save(content);
    out.PutBytes(content.bytes());
    ByteWriter round;
    if (table.sync()) table.rounds[local].Save(round);
    out.PutBytes(round.bytes());
  }
  out.Put(uint64_t{context_.state().workers.size()});
  for (const wire::WorkerInfo& worker : context_.state().workers) {
    out.Put(worker.incarnation.value);
    const LiveClient* client = clients_.Find(worker.incarnation);
    slots_[local].numbers.Save(client != nullptr ? client->index : ClientIndex{~uint32_t{0}}, out);
  }
}

// Nothing of the slot is here any more; its tables are there, to be loaded into.
void ShardImpl::ClearSlot(uint32_t local) {
  OwnedSlot& slot = slots_[local];
  slot.numbers.Clear();
  slot.index = slot.received = 0;
  for (const auto& raw : slot.tail) tail_bytes_ -= raw.size();
  slot.tail.clear();
  slot.copy.Take();
  slot.copying = slot.whole = false;
  slot.chunks = 0;
  for (auto& [id, table] : tables_) {
    if (local >= table.rows.size()) continue;
    table.rows[local].reset();
    if (slot.present()) MakeRows(table, local, table::SlotTable::Purpose::kToLoad);
    if (local < table.rounds.size()) table.rounds[local] = SlotRound();
  }
}

bool ShardImpl::LoadSlot(uint32_t local, std::span<const std::byte> bytes) {
  OwnedSlot& slot = slots_[local];
  ByteReader in(bytes);
  std::set<TableId> loaded;
  for (uint64_t n = in.GetCount(20); n > 0; --n) {
    const TableId id{in.Get<uint32_t>()};
    const auto content = in.GetBytes(), round = in.GetBytes();
    if (!in.ok()) return false;
    auto table = tables_.find(id);
    if (table == tables_.end()) continue;  // dropped meanwhile
    table::SlotTable& rows = *table->second.rows[local];
    ByteReader rows_in(content), round_in(round);
    loaded.insert(id);
    if (!rows.Load(rows_in)) return false;
    if (!table->second.sync()) continue;
    SlotRound& here = table->second.rounds[local];
    if (!here.Load(round_in)) return false;
    // What is only staged is not replicated: its workers send it again if this becomes the primary.
    if (rows.staged() && here.summed() == nullptr) rows.DropStaged();
  }
  for (auto& [id, table] : tables_)  // made since the copy
    if (!loaded.contains(id)) MakeRows(table, local);
  for (uint64_t n = in.GetCount(24); n > 0; --n) {
    const LiveClient* client = clients_.Find(Incarnation{in.Get<uint64_t>()});
    if (CAIRN_BUG(kCopyWithoutNumbers)) client = nullptr;
    if (!slot.numbers.Load(client != nullptr ? &client->index : nullptr, in)) return false;
  }
  return in.at_end();
}

uint64_t ShardImpl::TablesMark() const {
  uint64_t mark = 0;
  for (const auto& [id, table] : tables_) mark = Mix64(mark, id.value);
  return mark;
}

uint64_t ShardImpl::ContentHash(SlotId slot) const {
  const uint32_t local = slots_.LocalOfAny(slot.value);
  if (local == OwnedSlots::kNotHere || !slots_[local].present()) return 0;
  uint64_t hash = 0;
  for (const auto& [id, table] : tables_) {
    hash = Mix64(hash, id.value);
    hash = Mix64(hash, table.rows[local]->Hash());
    if (table.sync()) hash = Mix64(hash, table.rounds[local].open().value);
  }
  return hash;
}

}  // namespace cairn::server
