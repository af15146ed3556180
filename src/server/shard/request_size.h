// The largest body that a request may have, by what is known of its table: looked at before memory is
// taken for it. Pure.
#pragma once

#include <cstdint>

#include "cairn/types.h"
#include "wire/frame.h"

namespace cairn::server {

// A coded request of a table that is not known here (it was dropped before this server came, or this server
// is behind) may unfold to this: enough for the frames that clients cut, whose answer says what is wrong.
inline constexpr uint64_t kMostUnknownBytes = uint64_t{16} << 20;

// `spec`: of the header's table, known or dropped (dropped_tables.h); null if it is neither. Of what is no
// request: what a control message or a frame of a primary may have.
uint64_t MostRequestBytes(const wire::FrameHeader& header, const TableSpec* spec, uint32_t slot_count);
// The largest body of what a backup answers.
uint64_t MostBackupAnswerBytes(const wire::FrameHeader& header, uint32_t slot_count);

}  // namespace cairn::server
