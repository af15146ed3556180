#include "transport/tcp/write_queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/copy_bytes.h"

namespace cairn::transport {

std::span<const std::byte> WriteQueue::SpanOf(const wire::Frame& frame, size_t span) {
  return span == 0 ? frame.head.bytes() : frame.values[span - 1];
}

void WriteQueue::Push(wire::FramePtr frame) {
  bytes_ += frame->bytes();
  frames_.push_back(std::move(frame));
}

size_t WriteQueue::Gather(std::span<iovec> pieces, size_t max_bytes) const {
  size_t filled = 0;
  Cursor at = cursor_;
  for (const wire::FramePtr& frame : frames_) {
    for (; at.span < SpanCount(*frame); ++at.span, at.offset = 0) {
      if (filled == pieces.size() || max_bytes == 0) return filled;
      const std::span<const std::byte> bytes = SpanOf(*frame, at.span).subspan(at.offset);
      if (bytes.empty()) continue;
      const size_t take = std::min(bytes.size(), max_bytes);
      pieces[filled++] = {const_cast<std::byte*>(bytes.data()), take};
      max_bytes -= take;
    }
    at = {};
  }
  return filled;
}

void WriteQueue::Advance(size_t n) {
  CAIRN_CHECK(n <= bytes_);
  bytes_ -= n;
  while (!frames_.empty()) {
    const wire::Frame& frame = *frames_.front();
    while (cursor_.span < SpanCount(frame)) {
      const size_t left = SpanOf(frame, cursor_.span).size() - cursor_.offset;
      if (n < left) {
        cursor_.offset += n;
        return;
      }
      n -= left;
      ++cursor_.span;
      cursor_.offset = 0;
    }
    frames_.pop_front();
    cursor_ = {};
  }
}

void WriteQueue::Disown(const wire::Frame* frame, BufferPool& pool) {
  for (size_t i = 0; i < frames_.size(); ++i) {
    if (frames_[i].get() != frame) continue;
    frames_[i] = CopyFrom(*frame, i == 0 ? cursor_ : Cursor{}, pool);
    if (i == 0) cursor_ = {};
  }
}

wire::FramePtr WriteQueue::CopyFrom(const wire::Frame& frame, Cursor at, BufferPool& pool) {
  size_t size = 0;
  for (size_t s = at.span; s < SpanCount(frame); ++s) size += SpanOf(frame, s).size();
  size -= at.offset;
  auto rest = MakeRecycled<wire::Frame>();
  rest->head = pool.Get(size);
  std::byte* to = rest->head.data();
  for (; at.span < SpanCount(frame); ++at.span, at.offset = 0) {
    const std::span<const std::byte> bytes = SpanOf(frame, at.span).subspan(at.offset);
    if (bytes.empty()) continue;
    CopyBytes(to, bytes.data(), bytes.size());
    to += bytes.size();
  }
  return rest;
}

void WriteQueue::Clear() {
  frames_.clear();
  cursor_ = {};
  bytes_ = 0;
}

}  // namespace cairn::transport
