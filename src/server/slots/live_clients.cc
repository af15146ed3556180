#include "server/slots/live_clients.h"

#include <algorithm>

#include "base/check.h"
#include "base/planted.h"

namespace cairn::server {

std::vector<LiveClient> LiveClients::Update(const wire::ClusterState& state) {
  std::vector<LiveClient> gone;
  for (auto it = clients_.begin(); it != clients_.end();) {
    if (state.FindWorker(it->first) != nullptr) {
      ++it;
      continue;
    }
    if (it->second.listed) gone.push_back(it->second);
    it->second.listed = false;
    if (CAIRN_BUG(kDeathNotFenced)) {
      ++it;
      continue;
    }
    CAIRN_CHECK(index_taken_[it->second.index.value]);
    index_taken_[it->second.index.value] = false;
    it = clients_.erase(it);
  }
  for (const wire::WorkerInfo& worker : state.workers) {
    auto [it, fresh] = clients_.try_emplace(worker.incarnation);
    if (fresh) it->second = {worker.incarnation, worker.rank, TakeIndex(), true};
    it->second.rank = worker.rank;
  }
  return gone;
}

const LiveClient* LiveClients::Find(Incarnation incarnation) const {
  auto it = clients_.find(incarnation);
  return it == clients_.end() ? nullptr : &it->second;
}

const LiveClient* LiveClients::Admit(Incarnation incarnation) {
  auto [it, fresh] = clients_.try_emplace(incarnation);
  if (fresh) it->second = {incarnation, Rank{0}, TakeIndex(), true};
  return &it->second;
}

ClientIndex LiveClients::TakeIndex() {
  auto free = std::find(index_taken_.begin(), index_taken_.end(), false);
  const auto index = static_cast<uint32_t>(free - index_taken_.begin());
  if (free == index_taken_.end()) index_taken_.push_back(false);
  index_taken_[index] = true;
  return ClientIndex{index};
}

}  // namespace cairn::server
