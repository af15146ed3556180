#include "memory_faults.h"

#include <algorithm>
#include <utility>

#include "server_keeper.h"
#include "wire/replica.h"
#include "world.h"

namespace cairn::sim {

namespace {
// The owner on record, with a copy that the primary counts on.
const wire::Backup* InSyncBackup(const wire::ClusterState& state, const ShardName& name, uint32_t slot) {
  const wire::ServerInfo* server = state.FindServer(name.server);
  if (slot >= state.slots.size() || server == nullptr || server->incarnation.value != name.incarnation)
    return nullptr;
  const wire::Backup* backup = state.slots[slot].FindBackup(static_cast<uint16_t>(name.server));
  return backup != nullptr && backup->thread == name.thread && backup->in_sync ? backup : nullptr;
}
}  // namespace

MemoryFaults::MemoryFaults(World& world) : world_(world), random_(Mix64(world.plan().seed, 66)) {}

// Whole numbers are damaged, which are only ever added to: such a row never becomes right by itself.
void MemoryFaults::MayStrike(const ShardName& name, const server::Shard& shard, wire::InFrame& frame) {
  if (world_.healed() || !random_.Chance(world_.plan().memory_faults)) return;
  Context& context = world_.context();
  if (!context.damaged.empty() || !world_.AllIsWell()) return;
  wire::OpReader reader(frame.body());
  for (wire::OpView op; reader.Next(&op);) {
    const uint32_t slot = op.header.slot;
    const wire::Backup* backup = InSyncBackup(context.durable, name, slot);
    const auto table = context.tables.find(op.header.table);
    const Position held = shard.Received(SlotId(slot));
    // Not before it has taken the word of the primary of now: then nobody can tell where it is.
    const bool next = shard.RoleOf(SlotId(slot)) == server::Shard::SlotRole::kBackup && held.epoch() != 0 &&
                      op.header.index == held.index() + 1;
    if (op.header.kind != wire::OpKind::kPush || op.payload.empty() || backup == nullptr || !next) continue;
    if (table == context.tables.end() || table->second.spec.element != ElementType::kInt64) continue;
    const size_t at = static_cast<size_t>(op.payload.data() - frame.body().data());
    frame.storage.bytes()[at] ^= std::byte{1};
    context.damaged[{name, slot}] = {backup->added, op.header.index, held, false};
    world_.faults().Add(Fault::kMemory);
    world_.Log("memory", "a bit turns over in " + ToString(name) + ", slot " + std::to_string(slot) +
                             ", operation " + std::to_string(op.header.index));
    return;
  }
}

void MemoryFaults::Look(const ShardName& name, const server::Shard& shard) {
  for (auto& [where, damage] : world_.context().damaged) {
    if (where.first != name || damage.noticed) continue;
    const Position held = shard.Received(SlotId(where.second));
    if (held.epoch() != 0) {
      damage.held = held;
      continue;
    }
    damage.noticed = true;
    world_.context().deeds.Add(Deed::kDamageFound);
  }
}

void MemoryFaults::OnDurable(const wire::ClusterState& state) {
  std::erase_if(world_.context().damaged, [&](const auto& entry) {
    const wire::Backup* backup = InSyncBackup(state, entry.first.first, entry.first.second);
    return backup == nullptr || backup->added != entry.second.added;
  });
}

// The damaged frame may have been a copy of one that was taken already: then nothing has happened.
void MemoryFaults::OnMoment() {
  Context& context = world_.context();
  std::erase_if(context.damaged, [&](const auto& entry) {
    const ShardName& name = entry.first.first;
    const uint32_t slot = entry.first.second;
    const ShardName primary = context.OwnerOf(SlotId(slot));
    if (entry.second.noticed || !context.shards.contains(primary)) return false;
    const Position at = context.Applied(name, SlotId(slot));
    const auto &state = context.shard_states[name], &other = context.shard_states[primary];
    if (at.index() < entry.second.index || !state || !other || state->version != other->version) return false;
    const auto hash = [&](const ShardName& shard) {
      return context.shards[shard]->ContentHash(SlotId(slot));
    };
    return at == context.Applied(primary, SlotId(slot)) && hash(name) == hash(primary);
  });
}

std::string MemoryFaults::NotMended() const {
  if (world_.context().damaged.empty()) return {};
  const auto& [where, damage] = *world_.context().damaged.begin();
  return ToString(where.first) + " has a damaged copy of slot " + std::to_string(where.second) +
         (damage.noticed ? ", and has said so" : ", which nobody has noticed");
}

}  // namespace cairn::sim
