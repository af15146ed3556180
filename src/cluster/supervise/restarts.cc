#include "cluster/supervise/restarts.h"

#include <optional>

namespace cairn::cluster {

bool Restarts::Take(const NodeName& node, const ProcessEnd& end, int64_t now_ms,
                    const std::string& what_follows) {
  const std::optional<uint32_t> taken = counts_.Take(static_cast<uint32_t>(node.role), node.index, now_ms);
  if (!taken) return false;
  actions_.Say(ToString(node) + " " + ToString(end) + ": starting it again (" + std::to_string(*taken) +
               " of " + ToString(counts_.limit()) + ")" + what_follows);
  running_.Start(node);
  return true;
}

std::string Restarts::UsedUp() const {
  const RestartLimit& limit = counts_.limit();
  std::string text = ToString(limit);
  text.insert(std::to_string(limit.count).size(), limit.count == 1 ? " restart" : " restarts");
  return text + (limit.count == 1 ? " is" : " are") + " used up (--max-restarts)";
}

}  // namespace cairn::cluster
