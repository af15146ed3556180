#include "checker.h"

namespace cairn::sim {

std::string ToString(const ShardName& shard) {
  return "server " + std::to_string(shard.server) + " thread " + std::to_string(shard.thread);
}

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
    : plan(p), facts([this](const std::string& what) { report("same-request", what); }) {}

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

ShardName Context::OwnerOf(SlotId slot) const {
  if (slot.value >= durable.slots.size()) return {UINT32_MAX, 0};
  const wire::SlotOwner& owner = durable.slots[slot.value];
  return {owner.server, owner.thread};
}

server::Shard* Context::ShardOf(SlotId slot) const {
  auto it = shards.find(OwnerOf(slot));
  return it == shards.end() ? nullptr : it->second;
}

}  // namespace cairn::sim
