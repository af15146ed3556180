#include "server/sequence_numbers.h"

#include <algorithm>

namespace cairn::server {

void SequenceNumbers::UseRefused(ClientIndex client, Seq seq, const Status& why) {
  Use(client, seq);
  std::deque<Refusal>& refusals = refused_[client];
  refusals.push_back({seq, why});
  if (refusals.size() > refusals_kept_) refusals.pop_front();
}

const Status* SequenceNumbers::RefusalOf(ClientIndex client, Seq seq) const {
  if (refused_.empty()) return nullptr;
  auto of_client = refused_.find(client);
  if (of_client == refused_.end()) return nullptr;
  const std::deque<Refusal>& refusals = of_client->second;
  auto it = std::lower_bound(refusals.begin(), refusals.end(), seq,
                             [](const Refusal& r, Seq s) { return r.seq < s; });
  return it != refusals.end() && it->seq == seq ? &it->why : nullptr;
}

void SequenceNumbers::Forget(ClientIndex client) {
  if (client.value < last_.size()) last_[client.value] = Seq{0};
  refused_.erase(client);
}

}  // namespace cairn::server
