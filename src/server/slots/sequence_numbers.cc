#include "server/slots/sequence_numbers.h"

#include <algorithm>
#include <utility>

#include "base/bounds.h"
#include "base/planted.h"

namespace cairn::server {

void SequenceNumbers::UseRefused(ClientIndex client, Seq seq, const Status& why) {
  Use(client, seq);
  std::deque<Refusal>& refusals = refused_[client];
  refusals.push_back({seq, why});
  if (refusals.size() <= refusals_kept_) return;
  CAIRN_AT_BOUND(kRefusals);
  refusals.pop_front();
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

void SequenceNumbers::Save(ClientIndex client, ByteWriter& out) const {
  out.Put(last(client).value);
  const auto of_client = refused_.find(client);
  const size_t count = of_client == refused_.end() ? 0 : of_client->second.size();
  out.Put(uint64_t{count});
  if (count == 0) return;
  for (const Refusal& refusal : of_client->second) {
    out.Put(refusal.seq.value);
    out.Put(static_cast<uint8_t>(refusal.why.code()));
    out.PutText(refusal.why.message());
  }
}

bool SequenceNumbers::Load(const ClientIndex* client, ByteReader& in) {
  const Seq last_used{in.Get<uint64_t>()};
  Seq before{0};
  for (uint64_t n = in.GetCount(17); n > 0; --n) {
    const Seq seq{in.Get<uint64_t>()};
    const auto code = in.Get<uint8_t>();
    const std::string text = in.GetText();
    if (!in.ok() || code == 0 || code > static_cast<uint8_t>(Code::kInternal)) return false;
    if (seq <= std::exchange(before, seq) || seq > last_used) return false;
    if (client != nullptr && seq <= last(*client)) return false;  // it comes twice
    if (client != nullptr && !CAIRN_BUG(kCopyWithoutRefusals))
      UseRefused(*client, seq, {static_cast<Code>(code), text});
  }
  if (!in.ok()) return false;
  if (client != nullptr && last_used > last(*client)) Use(*client, last_used);
  return true;
}

void SequenceNumbers::Forget(ClientIndex client) {
  if (client.value < last_.size()) last_[client.value] = Seq{0};
  refused_.erase(client);
}

}  // namespace cairn::server
