// Turns bits over in what a backup was sent, after its checksum was checked: as a faulty memory does.
// Nothing tells the backup; comparing hashes with its primary must (docs/internals/consistency.md, rule 51),
// and it must be copied to anew. Strikes only while every slot has all of its owners in good health; until
// all is mended nobody is hurt (ServerKeeper::MayHurt).
#pragma once

#include <string>

#include "base/random.h"
#include "checker.h"
#include "wire/frame.h"

namespace cairn::sim {

class World;

class MemoryFaults {
 public:
  explicit MemoryFaults(World& world);

  // A shard is about to get this frame of operations.
  void MayStrike(const ShardName& name, const server::Shard& shard, wire::InFrame& frame);
  // Before and after whatever happens to a shard.
  void Look(const ShardName& name, const server::Shard& shard);
  void OnDurable(const wire::ClusterState& state);
  void OnMoment();
  std::string NotMended() const;  // empty if nothing is

 private:
  World& world_;
  Random random_;
};

}  // namespace cairn::sim
