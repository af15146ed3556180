// A whole slot as bytes and back (docs/internals/consistency.md, rule 43): every table's rows and rounds, and
// the sequence numbers with their refusals. And the hash that owners compare (rule 51). The primary saves, a
// backup clears and loads. No state of its own; the shard's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/byte_stream.h"
#include "server/slots/live_clients.h"
#include "server/slots/owned_slots.h"
#include "server/slots/shard_context.h"
#include "server/slots/tables.h"

namespace cairn::server {

class SlotContent {
 public:
  // All outlive it.
  SlotContent(const ShardContext& context, const LiveClients& clients, OwnedSlots& slots, Tables& tables)
      : context_(context), clients_(clients), slots_(slots), tables_(tables) {}

  void Save(uint32_t local, ByteWriter& out) const;
  // Nothing of the slot is here any more. Where it is present, its tables are there, to be loaded into.
  void Clear(uint32_t local);
  // Into what Clear has left. False if the bytes are not what Save makes.
  bool Load(uint32_t local, std::span<const std::byte> bytes);

  uint64_t Hash(uint32_t local) const;  // of what is applied; 0 where the slot is not present
  uint64_t TablesMark() const;          // hashes can be compared where this is the same
  uint64_t Bytes(uint32_t local) const;

 private:
  const ShardContext& context_;
  const LiveClients& clients_;
  OwnedSlots& slots_;
  Tables& tables_;
};

}  // namespace cairn::server
