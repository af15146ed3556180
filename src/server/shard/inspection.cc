#include "server/shard/inspection.h"

namespace cairn::server {

Position Inspection::Received(SlotId slot) const {
  if (!Present(slot)) return {};
  const OwnedSlot& here = slots_[Local(slot)];
  return here.primary() ? here.position() : backup_side_.Received(Local(slot));
}

Position Inspection::Applied(SlotId slot) const {
  if (!Present(slot)) return {};
  const OwnedSlot& here = slots_[Local(slot)];
  return here.primary() ? here.position() : backup_side_.Applied(Local(slot));
}

bool Inspection::WaitsFor(SlotId slot, uint32_t server) const {
  if (slots_.RoleOf(slot) != Shard::SlotRole::kPrimary) return false;
  return primary_side_.backups().WaitsFor(Local(slot), server);
}

Shard::HighWater Inspection::high_water() const {
  return {primary_side_.backups().unconfirmed_bytes(), backup_side_.tail_bytes(), gate_.held()};
}

Seq Inspection::LastSeq(SlotId slot, Incarnation incarnation) const {
  const LiveClient* client = clients_.Find(incarnation);
  if (!Present(slot) || client == nullptr) return Seq{0};
  return slots_[Local(slot)].numbers.last(client->index);
}

std::vector<Shard::Refusal> Inspection::RefusalsOf(SlotId slot, Incarnation incarnation) const {
  std::vector<Shard::Refusal> refusals;
  const LiveClient* client = clients_.Find(incarnation);
  if (!Present(slot) || client == nullptr) return refusals;
  slots_[Local(slot)].numbers.ForEachRefusal(
      client->index, [&](Seq seq, const Status& why) { refusals.push_back({seq, why}); });
  return refusals;
}

Round Inspection::OpenRound(TableId id, SlotId slot) const {
  const TableState* table = tables_.Find(id);
  if (table == nullptr || !table->sync() || !Present(slot)) return Round{0};
  return table->rounds[Local(slot)].open();
}

void Inspection::ForEachRow(TableId id, SlotId slot,
                            const std::function<void(RowKey, std::span<const std::byte>)>& row) const {
  const TableState* table = tables_.Find(id);
  if (table != nullptr && Present(slot)) table->rows[Local(slot)]->ForEach(row);
}

}  // namespace cairn::server
