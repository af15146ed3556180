// When a round is over: every slot of the cluster is covered by an answer of the shard thread that has it
// (docs/internals/consistency.md, rule 49). Where slots have moved, the round is marked again. The core's
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "base/ids.h"
#include "client/links/links.h"
#include "client/links/slot_book.h"
#include "client/protocol/newest_state.h"
#include "client/protocol/part_sender.h"
#include "client/protocol/request_table.h"
#include "wire/cluster_state.h"

namespace cairn::client {

class RoundCoverage {
 public:
  RoundCoverage(RequestTable& requests, Links& links, const SlotBook& book, PartSender& sender,
                NewestState& newest, BufferPool& pool)
      : requests_(requests), links_(links), book_(book), sender_(sender), newest_(newest), pool_(pool) {}

  // Slots have other owners from now on.
  void OnNewMap(const wire::ClusterState& state);
  // Marks that servers which are gone have answered cover nothing any more; their index may be given to
  // another one.
  void ForgetAnswersOf(const std::vector<std::unique_ptr<ShardLink>>& gone);
  // Marks every round that has been sent where its slots are now.
  void MarkOpenRounds(int64_t now_us);
  // Sends a bare mark to every shard thread that has not got one which covers the slots it has now; returns
  // to how many.
  size_t MarkMissing(uint64_t id, RequestRecord& record, int64_t now_us);

  // The shard had the slot map that this client has.
  bool SameMapAt(StateVersion version) const {
    return version.value <= book_.state_version && version >= newest_since_;
  }
  // A frame with a mark is answered.
  void NoteMark(RequestRecord& record, FrameState& frame, StateVersion made_under);
  // All frames are answered. False if the round has to be marked again somewhere, or an answer was made
  // under a state that has not come yet: then it ends later.
  bool IsCovered(uint64_t id, RequestRecord& record, int64_t now_us);
  // A new state has come: requests whose answers were all there, but not the state that they meant.
  std::vector<uint64_t> TakeAnswered();

 private:
  wire::FramePtr CopyMark(const RequestRecord& record, StateVersion since);

  RequestTable& requests_;
  Links& links_;
  const SlotBook& book_;
  PartSender& sender_;
  NewestState& newest_;
  BufferPool& pool_;
  StateVersion newest_since_;  // of all slots
  bool awaits_state_ = false;  // some round's answers are all there, but not the state they mean
};

}  // namespace cairn::client
