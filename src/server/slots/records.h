// What a shard has decided, as its observer is told: of pushes and of rounds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "cairn/status.h"
#include "cairn/types.h"
#include "wire/cluster_state.h"
#include "wire/data.h"

namespace cairn::server {

// What became of one slot's part of a push.
enum class Outcome : uint8_t { kApplied, kDuplicate, kGap, kRefused, kRetired };

// What a shard is to a slot.
enum class SlotRole : uint8_t { kNone, kPrimary, kBackup };

struct Contributor {
  Incarnation incarnation;
  Rank rank;
  double weight = 0;
  bool live = false;      // counted through its done mark (else: died, its contribution was complete)
  bool gradient = false;  // contributed values to this slot
  bool refused = false;   // its part was refused: done with weight 0
};
struct CloseRecord {
  TableId table;
  SlotId slot;
  Round round;
  StateVersion version;  // the state under which the shard closed it
  std::vector<Contributor> contributors;
  double divisor = 0;  // what the sum was divided by (kReduceSum: 1)
  Hyper hyper;
  // kHyperMismatch: closed without applying; kUnavailable: an assign that nobody gave values for.
  Code outcome = Code::kOk;
  Position position;
  PushOp op = PushOp::kUpdate;
  uint8_t column = 0;      // of an assign
  double scale = 1;        // as decided; the mean was multiplied by it
  bool two_phase = false;  // summed up, then closed by a decision
  bool skipped = false;    // so decided, or nobody was left to decide
  bool all_joined = false;
  wire::SlotReport report;  // of a round in two phases
};

// What the simulator's checkers look at. Called synchronously from the shard; must not call back.
class ShardObserver {
 public:
  virtual ~ShardObserver() = default;
  // One slot's part of a numbered push has been decided. keys/values only where kApplied.
  virtual void OnPush(SlotId slot, Incarnation incarnation, Seq seq, TableId table, Outcome outcome,
                      Code code, std::span<const RowKey> keys, std::span<const std::byte> values,
                      const Hyper& hyper, Position position) = 0;
  // A contribution was staged (added or kept for its turn); once per (worker, table, slot, round).
  virtual void OnStaged(SlotId slot, Incarnation incarnation, TableId table, Round round, double weight,
                        bool refused, std::span<const RowKey> keys, std::span<const std::byte> values) = 0;
  virtual void OnClosed(const CloseRecord& record) = 0;
  // A round in two phases is summed up in a slot: these are fixed until it closes.
  virtual void OnSummedUp(TableId, SlotId, Round, double /*divisor*/, const std::vector<Contributor>&,
                          Position) {}
  virtual void OnRetired(Incarnation incarnation) = 0;
  // This shard has become the slot's primary: operations up to this position are its history.
  virtual void OnPromoted(SlotId, Position) {}
};

}  // namespace cairn::server
