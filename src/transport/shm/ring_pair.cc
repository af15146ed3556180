#include "transport/shm/ring_pair.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/copy_bytes.h"

namespace cairn::transport::shm {
namespace {
// Byte `at` of the stream and those after it, as at most two pieces of a ring.
template <class Copy>
void EachPiece(std::byte* ring, size_t ring_bytes, uint64_t at, size_t bytes, Copy copy) {
  const size_t offset = static_cast<size_t>(at) & (ring_bytes - 1);
  const size_t first = std::min(bytes, ring_bytes - offset);
  copy(ring + offset, first);
  if (bytes > first) copy(ring, bytes - first);
}
}  // namespace

RingPair::RingPair(Memory own, Memory peers) : own_(std::move(own)), peers_(std::move(peers)) {}

void RingPair::LookForData() {
  const uint64_t written = peers_.words().written.load(std::memory_order_acquire);
  if (written == peer_written_ || broken_) return;
  // Forward only, and never more than fits.
  if (written - taken_ > peers_.ring_bytes() || written - taken_ < peer_written_ - taken_) {
    broken_ = true;
    return;
  }
  peer_written_ = written;
}

void RingPair::LookForRoom() {
  const uint64_t taken = peers_.words().taken.load(std::memory_order_acquire);
  if (taken == peer_taken_ || broken_) return;
  if (taken - peer_taken_ > written_ - peer_taken_) {
    broken_ = true;
    return;
  }
  peer_taken_ = taken;
}

size_t RingPair::Readable() {
  LookForData();
  return broken_ ? 0 : static_cast<size_t>(peer_written_ - taken_);
}

size_t RingPair::Read(const std::array<std::span<std::byte>, 2>& into) {
  const size_t readable = Readable();
  size_t done = 0;
  for (std::span<std::byte> to : into) {
    const size_t take = std::min(to.size(), readable - done);
    if (take == 0) continue;
    std::byte* at = to.data();
    EachPiece(peers_.ring(), peers_.ring_bytes(), taken_ + done, take, [&](const std::byte* from, size_t n) {
      CopyBytes(at, from, n);
      at += n;
    });
    done += take;
  }
  if (done == 0) return 0;
  taken_ += done;
  own_.words().taken.store(taken_, std::memory_order_release);
  return done;
}

size_t RingPair::Room(size_t wanted) {
  if (own_.ring_bytes() - (written_ - peer_taken_) < wanted) LookForRoom();
  return broken_ ? 0 : own_.ring_bytes() - static_cast<size_t>(written_ - peer_taken_);
}

size_t RingPair::Write(std::span<const iovec> pieces) {
  const size_t room = std::min(Room(kPieceBytes), kPieceBytes);
  size_t done = 0;
  for (const iovec& piece : pieces) {
    const size_t take = std::min(piece.iov_len, room - done);
    if (take == 0) continue;
    const auto* from = static_cast<const std::byte*>(piece.iov_base);
    EachPiece(own_.ring(), own_.ring_bytes(), written_ + done, take, [&](std::byte* to, size_t n) {
      CopyBytes(to, from, n);
      from += n;
    });
    done += take;
  }
  if (done == 0) return 0;
  written_ += done;
  own_.words().written.store(written_, std::memory_order_release);
  return done;
}

// The store before it and the load after it must not change places: else both sides could miss
// each other, the one that goes to sleep and the one that has just written.
bool RingPair::PeerWaitsForData() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const uint64_t asked = peers_.words().wants_data.load(std::memory_order_relaxed);
  if (asked == 0 || asked == rung_for_data_) return false;
  rung_for_data_ = asked;
  return true;
}

bool RingPair::PeerWaitsForRoom() {
  if (peer_written_ - taken_ > peers_.ring_bytes() / 2) return false;  // it would be full again at once
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const uint64_t asked = peers_.words().wants_room.load(std::memory_order_relaxed);
  if (asked == 0 || asked == rung_for_room_) return false;
  rung_for_room_ = asked;
  return true;
}

void RingPair::AskForData() {
  if (!asking_) ++sleeps_;
  asking_ = true;
  own_.words().wants_data.store(sleeps_, std::memory_order_relaxed);
}

void RingPair::AskForRoom() {
  if (!asking_) ++sleeps_;
  asking_ = true;
  own_.words().wants_room.store(sleeps_, std::memory_order_relaxed);
}

void RingPair::Awake() {
  if (!asking_) return;
  asking_ = false;
  own_.words().wants_data.store(0, std::memory_order_relaxed);
  own_.words().wants_room.store(0, std::memory_order_relaxed);
}

}  // namespace cairn::transport::shm
