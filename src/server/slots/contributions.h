// Who has contributed to one slot's open round of one table, and whose values are in the sum already
// (docs/internals/consistency.md, rules 15, 21 and 30). Pure bookkeeping over the slot's rows; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/byte_stream.h"
#include "base/check.h"
#include "base/ids.h"
#include "cairn/status.h"
#include "cairn/types.h"
#include "server/slots/done_marks.h"
#include "server/slots/records.h"
#include "server/slots/round_terms.h"
#include "table/slot_table.h"

namespace cairn::server {

// A received frame that waits for its turn in a deterministic sum; counts in `*kept_bytes`.
class KeptFrame {
 public:
  KeptFrame(Buffer storage, uint64_t* kept_bytes) : storage_(std::move(storage)), kept_bytes_(kept_bytes) {
    *kept_bytes_ += storage_.capacity();
  }
  ~KeptFrame() {
    CAIRN_CHECK(*kept_bytes_ >= storage_.capacity());
    *kept_bytes_ -= storage_.capacity();
  }
  KeptFrame(const KeptFrame&) = delete;
  KeptFrame& operator=(const KeptFrame&) = delete;

 private:
  Buffer storage_;
  uint64_t* kept_bytes_;
};

// One worker's complete part of a round in one slot.
struct Contribution {
  Incarnation incarnation;
  Rank rank;
  double weight = 0;
  double factor = 0;  // what its values are multiplied by in the sum
  RoundTerms terms;
  bool not_finite = false;       // its worker says so of the whole gradient
  Status refused;                // not ok: the part failed its check; done with weight 0
  bool folded = false;           // its values are in the sum (or there are none: refused)
  std::span<const RowKey> keys;  // while it is not folded
  std::span<const std::byte> values;
  table::Mask mask;
  std::shared_ptr<KeptFrame> kept;
};

class Contributions {
 public:
  const std::vector<Contribution>& all() const { return all_; }  // by rank
  bool empty() const { return all_.empty(); }
  // A worker's rank never changes; it makes the search short.
  const Contribution* Find(Rank rank, Incarnation incarnation) const;
  // Requires that the worker has not contributed yet.
  Contribution& Add(Contribution contribution);
  // Requires that it is there and not folded.
  void Remove(Rank rank, Incarnation incarnation);
  void Clear();

  bool HasUnfolded() const { return unfolded_ > 0; }
  // Adds `contribution`, one of these, to the sum at once (tables that are not deterministic).
  void Fold(Contribution& contribution, table::SlotTable& rows);
  // Adds those whose turn it is in the order of ranks.
  void FoldInOrder(Round round, SlotId slot, const DoneMarks& marks, table::SlotTable& rows);
  void FoldRest(table::SlotTable& rows);

  // The weights of all who are awaited in the round or have contributed; `contributors` gets all of them,
  // unless it is null.
  double SumWeights(Round round, const DoneMarks& marks, std::vector<Contributor>* contributors) const;

  // What a backup has to know of them once they are summed up: without values and terms.
  void Save(ByteWriter& out) const;
  bool Load(ByteReader& in);  // false: not what Save makes

 private:
  std::vector<Contribution> all_;  // by (rank, incarnation)
  uint32_t unfolded_ = 0;
};

}  // namespace cairn::server
