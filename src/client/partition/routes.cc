#include "client/partition/routes.h"

#include "base/check.h"

namespace cairn::client {

void Routes::Build(const wire::ClusterState& state) {
  constexpr uint32_t kNone = ~uint32_t{0};
  threads_.clear();
  base_.assign(state.servers.empty() ? 0 : state.servers.back().index + 1, kNone);
  for (const wire::ServerInfo& server : state.servers) {
    base_[server.index] = static_cast<uint32_t>(threads_.size());
    for (uint32_t t = 0; t < server.threads; ++t) {
      threads_.push_back({static_cast<uint16_t>(server.index), static_cast<uint16_t>(t), 0, 0});
    }
  }
  const auto thread_of = [&](const wire::SlotOwner& owner) -> Thread& {
    CAIRN_CHECK(owner.server < base_.size() && base_[owner.server] != kNone);
    Thread& thread = threads_.at(base_[owner.server] + owner.thread);
    CAIRN_CHECK(thread.server == owner.server);
    return thread;
  };
  for (const wire::SlotOwner& owner : state.slots) ++thread_of(owner).end;
  uint32_t at = 0;
  for (Thread& thread : threads_) {
    const uint32_t count = thread.end;
    thread.first = thread.end = at;
    at += count;
  }
  slots_.resize(state.slots.size());
  for (uint32_t slot = 0; slot < state.slots.size(); ++slot)
    slots_[thread_of(state.slots[slot]).end++] = slot;
}

}  // namespace cairn::client
