// The last push number of each client in one slot, and which of its pushes were refused: what
// makes a push apply exactly once (docs/internals/consistency.md, rule 13). Owned by the shard's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "base/byte_stream.h"
#include "base/check.h"
#include "base/ids.h"
#include "base/planted.h"
#include "cairn/status.h"

namespace cairn::server {

// A small number that a shard gives to each live client, so that a slot's numbers are an array.
using ClientIndex = StrongId<struct ClientIndexTag, uint32_t>;

class SequenceNumbers {
 public:
  // Remembers the newest `refusals_kept` refusals of each client; a client has no more in flight.
  explicit SequenceNumbers(uint32_t refusals_kept) : refusals_kept_(refusals_kept) {}

  // The last number used up, 0 if none.
  Seq last(ClientIndex client) const { return client.value < last_.size() ? last_[client.value] : Seq{0}; }
  // `seq` is used up: applied, or refused for a reason that its duplicates are told too. Each only once.
  void Use(ClientIndex client, Seq seq) {
    CAIRN_CHECK(seq > last(client) || CAIRN_ANY_BUG);
    if (client.value >= last_.size()) last_.resize(client.value + 1);
    last_[client.value] = seq;
  }
  void UseRefused(ClientIndex client, Seq seq, const Status& why);
  // Why a used number was refused; null if it was applied. Valid until the next change.
  const Status* RefusalOf(ClientIndex client, Seq seq) const;
  // Those that are remembered, by number, ascending.
  template <class Each>
  void ForEachRefusal(ClientIndex client, Each each) const {
    auto of_client = refused_.find(client);
    if (of_client == refused_.end()) return;
    for (const Refusal& refusal : of_client->second) each(refusal.seq, refusal.why);
  }
  // What a copy of the slot says of this client, and the reverse.
  void Save(ClientIndex client, ByteWriter& out) const;
  // False if the bytes are not what Save makes. `client` may be nothing: read over.
  bool Load(const ClientIndex* client, ByteReader& in);
  void Clear() {
    last_.clear();
    refused_.clear();
  }
  // The client is retired: its index may be given to another one.
  void Forget(ClientIndex client);

 private:
  struct Refusal {
    Seq seq;
    Status why;
  };
  uint32_t refusals_kept_;
  std::vector<Seq> last_;                               // by client index
  std::map<ClientIndex, std::deque<Refusal>> refused_;  // by number, ascending; mostly empty
};

}  // namespace cairn::server
