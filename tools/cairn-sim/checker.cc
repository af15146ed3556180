#include "checker.h"

#include <algorithm>

namespace cairn::sim {

uint64_t Actor::Tag() const {
  return (static_cast<uint64_t>(role) << 40) | (static_cast<uint64_t>(index) << 8) |
         static_cast<uint64_t>(thread + 1);
}

Actor Actor::FromTag(uint64_t tag, int process) {
  Actor actor;
  actor.role = static_cast<wire::Role>(tag >> 40);
  actor.index = static_cast<uint32_t>((tag >> 8) & 0xFFFFFFFF);
  actor.thread = static_cast<int32_t>(tag & 0xFF) - 1;
  actor.process = process;
  return actor;
}

const char* Name(CallEnd::Kind kind) {
  switch (kind) {
    case CallEnd::Kind::kStart: return "Start";
    case CallEnd::Kind::kCreate: return "CreateTable";
    case CallEnd::Kind::kDrop: return "DropTable";
    case CallEnd::Kind::kPush: return "Push";
    case CallEnd::Kind::kPushPull: return "PushPull";
    case CallEnd::Kind::kRound: return "Round";
    case CallEnd::Kind::kContribute: return "Contribute";
    case CallEnd::Kind::kDecide: return "Decide";
    case CallEnd::Kind::kPull: return "Pull";
    case CallEnd::Kind::kBarrier: return "Barrier";
    case CallEnd::Kind::kLeave: return "Leave";
  }
  return "?";
}

Context::Context(const Plan& p)
    : plan(p),
      facts([this](const std::string& what) { report("same-request", what); }),
      history([this](const std::string& what) { report("one-owner", what); }) {}

std::vector<Incarnation> Context::Awaited(const wire::ClusterState& state, TableId table, Round round) {
  std::vector<Incarnation> awaited;
  const wire::TableInfo* info = state.FindTable(table);
  if (info == nullptr) return awaited;
  for (const wire::WorkerInfo& worker : state.workers) {
    const bool takes_part = worker.join_view.value != 0 && FirstRound(state, worker, *info) <= round;
    if (takes_part) awaited.push_back(worker.incarnation);
  }
  return awaited;
}

namespace {
ShardName NameIn(const wire::ClusterState& state, uint16_t server, uint16_t thread) {
  const wire::ServerInfo* info = state.FindServer(server);
  return {server, thread, info == nullptr ? 0 : info->incarnation.value};
}
}  // namespace

ShardName Context::OwnerOf(SlotId slot) const {
  if (slot.value >= durable.slots.size()) return {UINT32_MAX, 0, 0};
  const wire::SlotOwner& owner = durable.slots[slot.value];
  return NameIn(durable, owner.server, owner.thread);
}

server::Shard* Context::ShardOf(SlotId slot) const {
  auto it = shards.find(OwnerOf(slot));
  return it == shards.end() ? nullptr : it->second;
}

std::vector<ShardName> Context::InSync(SlotId slot) const {
  std::vector<ShardName> owners;
  if (slot.value >= durable.slots.size()) return owners;
  owners.push_back(OwnerOf(slot));
  for (const wire::Backup& backup : durable.slots[slot.value].backups)
    if (backup.in_sync) owners.push_back(NameIn(durable, backup.server, backup.thread));
  return owners;
}

const ShardName* Context::NameOf(const Actor& shard) const {
  auto it = shard_names.find({shard.process, shard.thread});
  return it == shard_names.end() ? nullptr : &it->second;
}

// A primary that has handed its slot over stands in its own branch until its heir says something.
Position Context::Received(const ShardName& shard, SlotId slot) const {
  auto it = shards.find(shard);
  if (it == shards.end()) return {};
  const Position at = it->second->Received(slot);
  auto damage = damaged.find({shard, slot.value});
  if (damage != damaged.end() && damage->second.noticed) return damage->second.held;
  return at.epoch() != 0 ? at : Position::Of(EpochLed(shard, slot), at.index());
}

Position Context::Applied(const ShardName& shard, SlotId slot) const {
  auto it = shards.find(shard);
  if (it == shards.end()) return {};
  const Position at = it->second->Applied(slot);
  return at.epoch() != 0 ? at : Position::Of(EpochLed(shard, slot), at.index());
}

server::Shard::SlotRole Context::RoleOf(const ShardName& shard, SlotId slot) const {
  auto it = shards.find(shard);
  return it == shards.end() ? server::Shard::SlotRole::kNone : it->second->RoleOf(slot);
}

bool Context::IsAtEnd(const ShardName& shard, SlotId slot) const {
  const auto owners = InSync(slot);
  auto it = shards.find(shard);
  if (it == shards.end() || std::ranges::find(owners, shard) == owners.end()) return false;
  const Position end = history.End(slot), applied = Applied(shard, slot);
  return applied.index() == end.index() && (end.index() == 0 || history.Holds(slot, applied, end));
}

uint64_t Context::EpochLed(const ShardName& shard, SlotId slot) const {
  auto it = led.find({shard, slot.value});
  return it == led.end() ? 0 : it->second;
}

}  // namespace cairn::sim
