// The nodes of this launcher whose processes run, as far as it has heard.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "cluster/supervise/supervise_action.h"

namespace cairn::cluster {

class RunningNodes {
 public:
  explicit RunningNodes(ActionList& actions) : actions_(actions) {}

  void Start(const NodeName& node);
  // False: it was not among them.
  bool Remove(const NodeName& node) { return nodes_.erase(node) > 0; }
  // The same for each of a role, or for all: a signal.
  void Tell(SuperviseAction::Kind kind, wire::Role role);
  void TellAllBut(SuperviseAction::Kind kind, wire::Role role);
  void TellAll(SuperviseAction::Kind kind);

  bool none() const { return nodes_.empty(); }
  bool Has(const NodeName& node) const { return nodes_.contains(node); }
  bool Any(wire::Role role) const { return Count(role) > 0; }
  uint32_t Count(wire::Role role) const { return static_cast<uint32_t>(Indices(role).size()); }
  std::set<uint32_t> Indices(wire::Role role) const;  // server indices, or ranks
  std::vector<NodeName> names() const { return {nodes_.begin(), nodes_.end()}; }

 private:
  ActionList& actions_;
  std::set<NodeName> nodes_;
};

}  // namespace cairn::cluster
