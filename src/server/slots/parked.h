// Requests whose answer waits for rounds to close, or to be summed up: sync pulls, contributions,
// done marks and decisions (docs/internals/consistency.md, rules 18, 22, 33 and 34). A request waits at one
// slot at a time, so that a round of tens of thousands of frames costs each of them only a step per slot; the
// slot keeps its number.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/ids.h"
#include "base/recycled.h"
#include "cairn/types.h"
#include "wire/control.h"
#include "wire/frame.h"

namespace cairn::server {

using ParkedId = uint64_t;

struct ParkedRequest {
  ParkedId id = 0;
  ConnId conn;  // where the answer goes: the connection of the latest copy; 0: lost
  wire::FrameHeader header;
  Round needed;              // every slot waited for must have an open round of at least this
  bool first_phase = false;  // or the round before it, summed up: the answer is a report
  bool every_slot = false;   // carries a done mark: waits for every slot of the table here
  uint32_t next = 0;         // else: the entry it waits at
  Buffer storage;            // what the spans point into
  std::span<const wire::SlotEntry> entries;
  std::span<const RowKey> keys;
  int64_t since_us = 0;  // when it was parked
  int64_t told_us = 0;   // when it was parked or last told who is missing
};

class ParkedRequests {
 public:
  // No client has more requests, or more bytes of them, waiting at one shard; the next is refused.
  static constexpr uint32_t kMaxPerClient = 1 << 18;
  static constexpr uint64_t kMaxBytesPerClient = uint64_t{256} << 20;

  // The copy of `header` that already waits; its answers now go to `conn`. Null if there is none.
  ParkedRequest* Adopt(const wire::FrameHeader& header, ConnId conn);
  bool HasRoom(Incarnation client, uint64_t bytes) const;
  // Takes a request that Adopt does not know; gives it its id.
  ParkedRequest& Add(ParkedRequest request);
  // Null once it has been answered or forgotten.
  ParkedRequest* Find(ParkedId id);
  void Remove(ParkedId id);

  // The connection is gone: its requests wait on for a copy on another one.
  void ForgetConnection(ConnId conn);
  void ForgetClient(Incarnation client);
  // All of them, or those of one table, in the order of arrival; they no longer wait.
  std::vector<ParkedRequest> TakeAll();
  std::vector<ParkedRequest> TakeTable(TableId table);
  // Calls look(request, waited_us) for those that have waited some seconds, the longest first. Where things
  // stand still thousands may wait: not all are looked at.
  template <class Look>
  void ForEachStalled(int64_t now_us, Look look) const {
    size_t looked_at = 0;
    for (const auto& [id, request] : by_id_) {
      const int64_t waited_us = now_us - request.since_us;
      if (waited_us < kStalledAfterUs || ++looked_at > kMostLookedAt) return;
      look(request, waited_us);
    }
  }
  RecycledMap<ParkedId, ParkedRequest>& all() { return by_id_; }  // in the order of arrival
  const RecycledMap<ParkedId, ParkedRequest>& all() const { return by_id_; }

 private:
  static constexpr int64_t kStalledAfterUs = 2'000'000;
  static constexpr size_t kMostLookedAt = 1024;
  using Key = std::pair<uint64_t, uint64_t>;  // incarnation, request id
  void Unload(const ParkedRequest& request);
  static Key KeyOf(const wire::FrameHeader& header) { return {header.incarnation, header.request_id}; }

  RecycledMap<ParkedId, ParkedRequest> by_id_;
  RecycledMap<Key, ParkedId> by_request_;
  struct Load {
    uint32_t requests = 0;
    uint64_t bytes = 0;  // of storage
  };
  RecycledMap<Incarnation, Load> per_client_;
  ParkedId next_id_ = 1;
};

// What is said of requests that have waited so long for these workers.
wire::StalledRound Stalled(TableId table, Round awaited, int64_t waited_us,
                           std::vector<uint32_t> missing_ranks);

}  // namespace cairn::server
