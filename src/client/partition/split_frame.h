// Cuts a frame by the slots it names, after a slot map in which they have several owners
// (docs/internals/consistency.md, rule 48). Pure functions.
#pragma once

#include <vector>

#include "base/buffer.h"
#include "base/ids.h"
#include "client/partition/request.h"
#include "wire/cluster_state.h"
#include "wire/frame.h"

namespace cairn::client {

// Where the slots of a frame are owned.
struct FrameHome {
  bool one = false;  // by one shard thread, this one:
  uint16_t server = 0, thread = 0;
  StateVersion stamp;  // a frame that names these slots must be made under this version or a later
};
// Requires entries, and that every slot is one of the state's.
FrameHome HomeOf(wire::Frame& frame, const wire::ClusterState& state);

// One part for each owner of the frame's slots, in the order of their first slots. Each has its own
// frame: entries with their numbers, keys and values of its slots, parameters, bitmap and mask as
// they were, and a state_version that its owner accepts; and its own share of the places in
// `whole` (server, thread and frame of which are not looked at). Values are not copied: the new
// frames refer to the same memory, and keep the old frame alive unless that memory is borrowed from
// the caller of the request. Request id and checksum are still to be set; only the first part has
// kFlagTrip.
std::vector<ShardPart> CutBySlot(const wire::FramePtr& frame, const ShardPart& whole,
                                 const wire::ClusterState& state, BufferPool& pool);

// The same frame with a head of its own, which may be changed while the old one is under way.
wire::FramePtr WithOwnHead(const wire::FramePtr& frame, bool borrowed, BufferPool& pool);

}  // namespace cairn::client
