// The workers that a shard lets in: those that its state lists (docs/internals/consistency.md, rules 12 and
// 20). Each has a small index, given again once its incarnation is retired.
#pragma once

#include <map>
#include <vector>

#include "base/ids.h"
#include "server/slots/sequence_numbers.h"
#include "wire/cluster_state.h"

namespace cairn::server {

struct LiveClient {
  Incarnation incarnation;
  Rank rank;
  ClientIndex index;
  bool listed = true;  // by the newest state; one that is not stays only under a planted bug
};

class LiveClients {
 public:
  // Makes the set that of the state. Returns those that are gone, by incarnation.
  std::vector<LiveClient> Update(const wire::ClusterState& state);
  const LiveClient* Find(Incarnation incarnation) const;
  // Lets in an incarnation that no state lists. Only a planted bug does this.
  const LiveClient* Admit(Incarnation incarnation);

 private:
  ClientIndex TakeIndex();
  std::map<Incarnation, LiveClient> clients_;
  std::vector<bool> index_taken_;
};

}  // namespace cairn::server
