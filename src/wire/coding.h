// Frames in fewer bytes (docs/internals/wire-format.md, "Coded frames"): a lossless coding that is put on
// when a frame is handed to a connection and taken off before anybody looks at the message. Pure.
#pragma once

#include <cstddef>
#include <span>

#include "base/buffer.h"
#include "cairn/status.h"
#include "cairn/types.h"
#include "wire/frame.h"
#include "wire/half_floats.h"

namespace cairn::wire {

// What is worth a try with the frames of such a table.
Coding CodingOf(WireFormat format);

// Whether RoundValues does something.
bool Rounds(WireFormat format);
// Rounds the float32 `values` where the format is one of two bytes, and else does nothing. False if
// one of them was rounded and is not finite. What is lost is lost here: the coding loses nothing.
bool RoundValues(WireFormat format, TooLarge too_large, std::span<std::byte> values);

// The same message, coded as frame.coding says, with all of its bytes in `head`: it refers to
// nothing of the caller's. Null where it would not be smaller, or where a value would not survive
// it bit by bit; then the frame is sent as it is. Requires a sealed frame.
FramePtr CodeFrame(const Frame& frame, BufferPool& pool);

// Turns a coded frame that has passed CheckHeader and CheckBody into the plain one, which has passed
// CheckHeader too (its checksum is 0: what it covered was the coded body). On an error *frame is of
// no more use. `max_body_bytes` bounds the plain body before memory is taken for it.
Status DecodeFrame(InFrame* frame, uint32_t max_body_bytes, BufferPool& pool);

}  // namespace cairn::wire
