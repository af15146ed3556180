// Both directions of one connection through shared memory: our ring, which only we write, and the
// peer's, which we only read (docs/internals/wire-format.md, "Shared memory"). No socket: it says when the
// peer is to be woken. One thread at a time; may move to another loop.
//
// Nothing of the peer is believed. Each of its words is loaded once and checked before it is used;
// after one that can't be, broken() stays true and nothing more is read or written. Our own
// counters live here, and are only stored to shared memory, never loaded from it.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/shm/memory.h"

namespace cairn::transport::shm {

class RingPair {
 public:
  // So much is copied before the other side is told: both work on pieces that are in the cache.
  static constexpr size_t kPieceBytes = 64 * 1024;

  RingPair(Memory own, Memory peers);

  // Bytes that can be read now.
  size_t Readable();
  // Copies what is readable and fits into `into`: first the first piece, then the second. Returns
  // how much; 0 if there is nothing.
  size_t Read(const std::array<std::span<std::byte>, 2>& into);
  // Free bytes of our ring, as far as is known; looks at the peer's word if that is less than
  // `wanted`.
  size_t Room(size_t wanted);
  // Copies as much of `pieces` as there is room for, at most kPieceBytes. Returns how much.
  size_t Write(std::span<const iovec> pieces);

  // Whether the peer sleeps and waits for what the last Read or Write has done. True once for each
  // time that it went to sleep: the caller then wakes it.
  bool PeerWaitsForData();
  bool PeerWaitsForRoom();

  // From now on the peer is to wake us. Before the caller sleeps it must pass a full fence and look
  // again.
  void AskForData();
  void AskForRoom();
  void Awake();

  bool broken() const { return broken_; }
  size_t ring_bytes() const { return own_.ring_bytes(); }

 private:
  void LookForData();
  void LookForRoom();

  Memory own_, peers_;
  uint64_t written_ = 0, taken_ = 0;            // ours
  uint64_t peer_written_ = 0, peer_taken_ = 0;  // the peer's, as last seen and checked
  uint64_t rung_for_data_ = 0, rung_for_room_ = 0;
  uint64_t sleeps_ = 0;
  bool asking_ = false;
  bool broken_ = false;
};

}  // namespace cairn::transport::shm
