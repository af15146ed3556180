// A frame on its way, numbered and sealed. Which part of which request it is, the listener of its link
// knows.
#pragma once

#include <cstdint>

#include "client/partition/request.h"
#include "wire/frame.h"

namespace cairn::client {

struct Outgoing {
  uint64_t request = 0;
  uint32_t part = 0;
  Request::Kind kind = Request::Kind::kPush;
  bool parks = false;    // a shard may keep it for long: contributions, marks, pulls of sync tables
  bool borrows = false;  // its values lie in the caller's memory
  wire::FramePtr frame;
  uint64_t answer_bytes = 0;  // of values in its answer, at most
  uint32_t sends = 0;         // on this link, or more than one where it has been on another
  int64_t heard_us = 0;       // parks: when it was sent, or the shard last said that it is kept there
  bool again = false;         // asked to come back later
};

}  // namespace cairn::client
