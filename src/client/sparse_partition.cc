// Sparse tables: keys are grouped by slot, repeated keys of a push are summed, and values are
// gathered straight into the frame's buffer in slot order while they are checked.
#include <cstring>
#include <utility>

#include "client/draft.h"
#include "client/finite.h"
#include "client/slot_grouping.h"

namespace cairn::client {
namespace {

// Kept by each calling thread: a warm push allocates nothing here.
struct Workspace {
  SlotGrouping groups;
  SeenKeys seen;
};

class SparsePartition {
 public:
  SparsePartition(const PartitionInput& input, const Routes& routes, const Directions& what, BufferPool& pool,
                  Workspace& work)
      : input_(input), routes_(routes), what_(what), pool_(pool), work_(work),
        row_bytes_(input.table->spec.dim * ElementBytes(input.table->spec)) {}

  Result<std::vector<Draft>> Run() {
    work_.groups.Build(input_.keys, static_cast<uint32_t>(input_.state->slots.size()), routes_);
    for (const Routes::Thread& thread : routes_.threads()) {
      for (uint32_t first = thread.first; first < thread.end;) {
        if (Status s = AddDraft(thread, &first); !s.ok()) return s;
      }
    }
    return std::move(drafts_);
  }

 private:
  // Groups from *first on until the target is passed; moves *first behind them.
  Status AddDraft(const Routes::Thread& thread, uint32_t* first) {
    Draft draft;
    draft.part.server = thread.server;
    draft.part.thread = thread.thread;
    const uint32_t begin = *first;
    uint64_t rows = 0, slots = 0;
    for (; *first < thread.end && rows * row_bytes_ < kFrameTargetBytes; ++*first) {
      const uint64_t more = work_.groups.count(*first);
      if (more == 0) continue;
      if (Status s = CheckFrameBytes(input_, (rows + more) * row_bytes_, rows + more, slots + 1); !s.ok()) {
        if (rows > 0) break;
        return s;
      }
      rows += more;
      ++slots;
    }
    if (rows == 0) return Status::Ok();
    draft.entries.reserve(slots);
    if (what_.push) {
      if (!Gather(draft, begin, *first, rows)) return NotFiniteError(input_);
    } else {
      Ask(draft, begin, *first, rows);
    }
    if (what_.pull) {
      draft.part.out = input_.out.data();
      draft.part.row_bytes = static_cast<uint32_t>(row_bytes_);
    }
    drafts_.push_back(std::move(draft));
    return Status::Ok();
  }

  // A pull: keys as they are, each row of the reply goes where its key stood.
  void Ask(Draft& draft, uint32_t begin, uint32_t end, uint64_t rows) {
    const uint32_t at = work_.groups.first(begin);
    for (uint32_t i = begin; i < end; ++i) {
      if (work_.groups.count(i) != 0) draft.entries.push_back({routes_.slots()[i], work_.groups.count(i), 0});
    }
    draft.keys = work_.groups.keys().subspan(at, rows);
    const auto places = work_.groups.places().subspan(at, rows);
    draft.part.rows.assign(places.begin(), places.end());
  }

  // A push: false if a value is not finite where the table refuses that.
  bool Gather(Draft& draft, uint32_t begin, uint32_t end, uint64_t rows) {
    draft.owned = pool_.Get(rows * row_bytes_);
    if (what_.pull) draft.part.rows.reserve(rows);
    bool finite = true;
    uint32_t unique = 0;
    for (uint32_t i = begin; i < end; ++i) {
      if (work_.groups.count(i) == 0) continue;
      const uint32_t before = unique;
      finite &= GatherSlot(draft, i, work_.groups.first(begin), &unique);
      draft.entries.push_back({routes_.slots()[i], unique - before, 0});
    }
    draft.owned.Resize(size_t{unique} * row_bytes_);
    draft.values = {draft.owned.bytes()};
    draft.keys = work_.groups.keys().subspan(work_.groups.first(begin), unique);
    return finite;
  }

  // Keys are moved together where they lie: what is left of them starts at `keys_at`.
  bool GatherSlot(Draft& draft, uint32_t group, uint32_t keys_at, uint32_t* unique) {
    const bool is_float = input_.table->spec.element == ElementType::kFloat32;
    const bool check = ChecksFinite(input_.table->spec);
    const std::span<RowKey> keys = work_.groups.keys();
    const uint32_t first = work_.groups.first(group), count = work_.groups.count(group);
    const uint32_t slot_begin = *unique;
    bool finite = true, summed = false;
    work_.seen.Start(count);
    for (uint32_t k = first; k < first + count; ++k) {
      const uint32_t place = work_.groups.places()[k];
      const RowKey key = keys[k];
      const uint32_t row = work_.seen.Insert(key, *unique);
      std::byte* to = draft.owned.data() + size_t{row} * row_bytes_;
      const std::byte* from = input_.values.data() + size_t{place} * row_bytes_;
      if (row == *unique) {
        keys[keys_at + row] = key;
        ++*unique;
        finite &= Copy(to, from, check);
        if (what_.pull) draft.part.rows.push_back(place);
      } else {
        is_float ? AddTo<float>(to, from, row_bytes_) : AddTo<uint64_t>(to, from, row_bytes_);
        summed = true;
        if (what_.pull) draft.part.repeats.push_back({row, place});
      }
    }
    // A sum is checked as a whole: NaN and Inf stay in it, and finite rows may overflow.
    if (summed && check) {
      const size_t at = size_t{slot_begin} * row_bytes_;
      finite &= AllFinite({draft.owned.data() + at, size_t{*unique} * row_bytes_ - at});
    }
    return finite;
  }

  bool Copy(std::byte* to, const std::byte* from, bool check) const {
    if (check) return CopyFinite(to, from, row_bytes_);
    std::memcpy(to, from, row_bytes_);
    return true;
  }

  const PartitionInput& input_;
  const Routes& routes_;
  const Directions& what_;
  BufferPool& pool_;
  Workspace& work_;
  const size_t row_bytes_;
  std::vector<Draft> drafts_;
};

}  // namespace

Result<std::vector<Draft>> DraftSparse(const PartitionInput& input, const Routes& routes, const Directions& what,
                                       BufferPool& pool) {
  thread_local Workspace work;
  return SparsePartition(input, routes, what, pool, work).Run();
}

}  // namespace cairn::client
