// How a round ended in one slot, on the primary and its backups; and its bytes
// (docs/internals/consistency.md, rules 32, 33, 40 and 50). Values.
#pragma once

#include <cstdint>
#include <vector>

#include "base/byte_stream.h"
#include "base/ids.h"
#include "cairn/status.h"
#include "cairn/types.h"
#include "server/slots/records.h"
#include "wire/data.h"

namespace cairn::server {

struct RefusedPart {
  Incarnation incarnation;
  Status why;
};

struct ClosedRound {
  enum class Effect : uint8_t { kNothing = 0, kUpdate = 1, kAssign = 2 };

  double divisor = 0;
  Hyper hyper;
  Status outcome;
  std::vector<Contributor> contributors;  // only if asked for
  PushOp op = PushOp::kUpdate;
  uint8_t column = 0;
  double scale = 1;
  bool two_phase = false;  // it was summed up, and closed by a decision
  bool skipped = false;
  bool all_joined = false;
  wire::SlotReport report;
  Effect effect = Effect::kNothing;  // of the staged sums
  bool counts = false;               // as a step of the table
  std::vector<RefusedPart> refused;  // whose part was; they are told why
};

// All but the contributors and the report; staged sums are the table's business. Load: false if the bytes are
// not what Save makes.
void SaveClosed(const ClosedRound& closed, ByteWriter& out);
bool LoadClosed(ByteReader& in, ClosedRound* closed);

void SaveStatus(const Status& status, ByteWriter& out);
Status LoadStatus(ByteReader& in);
void SaveRefused(const std::vector<RefusedPart>& refused, ByteWriter& out);
std::vector<RefusedPart> LoadRefused(ByteReader& in);

}  // namespace cairn::server
