// A request as the caller's thread prepares it and the client's state machine takes it: its frames, and where
// the values of its answers go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/call.h"
#include "base/ids.h"
#include "base/recycled.h"
#include "cairn/client.h"
#include "cairn/status.h"
#include "wire/frame.h"

namespace cairn::client {

// One frame of a request, to one shard thread. `into` says where the values of its reply go:
// reply bytes are scattered, in order, into these spans (empty: no values expected; a span with a
// size and no memory: so many bytes are skipped).
struct ShardPart {
  uint16_t server = 0, thread = 0;  // of the state that the frame was made under
  wire::FramePtr frame;             // entries not yet numbered, request_id not yet set
  bool borrowed = false;            // the frame's values lie in the caller's memory
  RecycledVector<std::span<std::byte>> into;
  // Sparse tables, instead of `into`: row i of the reply goes to row rows[i] of `out`; `repeats`
  // are the further places of keys that stood several times in a push-pull.
  struct Repeat {
    uint32_t from = 0;  // row of the reply
    uint32_t to = 0;    // row of `out`
  };
  RecycledVector<uint32_t> rows;
  RecycledVector<Repeat> repeats;
  std::byte* out = nullptr;
  uint32_t row_bytes = 0;
  // A request for keys, instead of both: those of the reply, however many, are added here.
  std::vector<RowKey>* keys = nullptr;
};

// A prepared request (client/partition/partition.h makes it). What `frame` and `into` refer to must stay
// alive until `done` is called.
struct Request {
  // kContribute and kDecide are the two phases of a round (docs/internals/consistency.md, rules 33 to 35).
  // kClock: tells every shard thread how many steps of a bounded table are over (rule 56); the core's own.
  enum class Kind { kPush, kRound, kPull, kContribute, kDecide, kClock };
  Kind kind = Kind::kPush;
  TableId table;
  uint64_t bytes = 0;  // payload, counted against max_unacked_bytes (kPush)
  // A push in parts, each a request: all have the same number (0: it is whole). The first one says how much
  // room all of them need and waits for that; the others (0) go as soon as it has gone. If it expires before
  // that, so do they: of such a push either every part is sent, or none.
  uint64_t push = 0, room = 0;
  RecycledVector<ShardPart> parts;
  // Rounds: a bare mark, to be copied for shard threads that have to be told (again) that this
  // worker's part of the round is complete: slots move (docs/internals/consistency.md, rule 49).
  wire::FramePtr mark;
  bool joined = false;        // rounds: the marks say so
  RoundInfo* info = nullptr;  // rounds: written before `done` is called with ok, never later
  // Requests of one trip have the same number, and only the first frame of it on a connection says
  // kFlagTrip; 0: a trip of its own. So is what has to wait for its turn.
  uint64_t trip = 0;
  int64_t deadline_us = 0;  // absolute
  Call<void(Status)> done;  // exactly once, from inside some On… or Submit call
};

// Parts of sync rounds, answered with a kRoundReply.
inline bool IsRound(Request::Kind kind) {
  return kind == Request::Kind::kRound || kind == Request::Kind::kContribute ||
         kind == Request::Kind::kDecide;
}

}  // namespace cairn::client
