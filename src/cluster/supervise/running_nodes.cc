#include "cluster/supervise/running_nodes.h"

namespace cairn::cluster {

void RunningNodes::Start(const NodeName& node) {
  nodes_.insert(node);
  actions_.Do(SuperviseAction::Kind::kStart, node);
}

void RunningNodes::Tell(SuperviseAction::Kind kind, wire::Role role) {
  for (const NodeName& node : nodes_)
    if (node.role == role) actions_.Do(kind, node);
}

void RunningNodes::TellAllBut(SuperviseAction::Kind kind, wire::Role role) {
  for (const NodeName& node : nodes_)
    if (node.role != role) actions_.Do(kind, node);
}

void RunningNodes::TellAll(SuperviseAction::Kind kind) {
  for (const NodeName& node : nodes_) actions_.Do(kind, node);
}

std::set<uint32_t> RunningNodes::Indices(wire::Role role) const {
  std::set<uint32_t> indices;
  for (const NodeName& node : nodes_)
    if (node.role == role) indices.insert(node.index);
  return indices;
}

}  // namespace cairn::cluster
