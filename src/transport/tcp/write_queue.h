// The frames that wait to be written to one connection, and how far the first of them is. No
// socket: it says which bytes come next and is told how many have gone. One thread.
//
// Borrowed memory. A frame may refer to a caller's arrays (a contribution to a sync round is not
// copied). They are read only while Gather's pieces are handed to the system, never between the
// loop's handlers, and the driver calls Disown before it tells the caller that a request has ended.
// So a frame that is still queued then (its request timed out, or its resent copy was overtaken by
// the answer) never reads memory that the caller has taken back.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>

#include "base/buffer.h"
#include "base/recycled.h"
#include "wire/frame.h"

namespace cairn::transport {

class WriteQueue {
 public:
  void Push(wire::FramePtr frame);
  bool empty() const { return frames_.empty(); }
  // Not yet written.
  size_t bytes() const { return bytes_; }

  // The next bytes in order, over as many frames as fit into `pieces` and `max_bytes`. Returns how
  // many pieces were filled; 0 only if the queue is empty.
  size_t Gather(std::span<iovec> pieces, size_t max_bytes) const;
  // The first `n` bytes of what Gather said have been written.
  void Advance(size_t n);
  // Lets go of `frame` and of what it refers to: wherever it is queued, a copy of what is not yet
  // written takes its place. (It is not dropped: the peer gets frames whole, and a request may go
  // on after its caller has been told that the deadline has passed.)
  void Disown(const wire::Frame* frame, BufferPool& pool);
  void Clear();

 private:
  // Where the next byte of the first frame is: span 0 is the head, span i the values' span i - 1.
  struct Cursor {
    size_t span = 0;
    size_t offset = 0;
  };
  static std::span<const std::byte> SpanOf(const wire::Frame& frame, size_t span);
  static size_t SpanCount(const wire::Frame& frame) { return 1 + frame.values.size(); }
  static wire::FramePtr CopyFrom(const wire::Frame& frame, Cursor at, BufferPool& pool);

  RecycledDeque<wire::FramePtr> frames_;
  Cursor cursor_;
  size_t bytes_ = 0;
};

}  // namespace cairn::transport
