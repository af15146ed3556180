// What a primary's shard keeps for its replication: a stream to each shard thread that backs one of
// its slots, with the copies that go over it, and the answers that wait for confirmations
// (docs/internals/consistency.md, rules 40, 41 and 43). Plain data; the shard does the work (replication.cc,
// held_answers.cc).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/recycled.h"
#include "server/shard/owned_slots.h"
#include "server/replication/replica_stream.h"
#include "wire/frame.h"

namespace cairn::server {

// A slot's content on its way to a backup.
struct SlotCopy {
  std::vector<std::byte> content;
  uint64_t index = 0;  // the position that it was taken at
  size_t sent = 0;     // bytes
  uint64_t chunks = 0;
  std::deque<uint64_t> under_way;  // frames with pieces that are not confirmed
  bool ended = false;              // the end is sent too
  uint64_t behind_bytes = 0;       // of later operations, which the backup keeps until the end
  int64_t began_us = 0;
};

struct BackupStream {
  BackupStream(ReplicaRoute route, const ReplicaStreamTimes& times, Network& network, BufferPool& pool,
               SendersByConn& by_conn, ReplicaSender::Listener& listener)
      : sender(std::move(route), times, network, pool, by_conn, listener) {}

  // An operation of a slot with several backups: which frame it is in.
  struct Note {
    uint64_t number = 0;
    uint32_t local = 0;
    uint64_t index = 0;
  };
  ReplicaSender sender;
  RecycledDeque<Note> notes;
  RecycledDeque<std::pair<uint64_t, uint64_t>> waiting;  // (frame, held answer), by frame
  uint32_t copying = OwnedSlots::kNotHere;            // the slot whose copy is under way
  SlotCopy copy;
  int64_t next_copy_us = 0;
  uint32_t first_waiting = 0;  // no local slot below it waits to be copied to over this stream
};

// An answer that waits until everything that it is about is on the backups.
struct HeldAnswer {
  ConnId conn;
  wire::FramePtr frame;
  bool every_slot = false;          // is about all slots of the shard
  RecycledVector<uint32_t> locals;  // else: about these
  RecycledVector<std::pair<BackupStream*, uint64_t>> marks;  // frames that have to be confirmed
  int64_t told_us = 0;  // when it was made, or its client was last told that it waits
};
using HeldAnswers = RecycledMap<uint64_t, HeldAnswer>;  // by the order of making

}  // namespace cairn::server
