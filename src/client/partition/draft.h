// One frame of a request in the making: what dense and sparse partition hand to the part that
// encodes frames. Internal to the partition.
#pragma once

#include <cstdint>
#include <span>

#include "base/buffer.h"
#include "base/recycled.h"
#include "client/partition/request.h"
#include "wire/data.h"

namespace cairn::client {

struct Draft {
  ShardPart part;  // server, thread and where the reply goes; no frame yet
  RecycledVector<wire::SlotEntry> entries;
  std::span<const RowKey> keys;  // in the sparse workspace
  Buffer owned;
  wire::Pieces values;
};
using Drafts = RecycledVector<Draft>;

// What the request does with the two directions.
struct Directions {
  bool push = false;
  bool pull = false;    // replies go to input.out
  bool borrow = false;  // dense pushes: refer to the caller's values instead of copying them
  uint8_t column = 0;   // pulls: goes into the entries
};

}  // namespace cairn::client
