#include "client/partition/sparse_partition.h"

#include <cstring>
#include <utility>
#include <vector>

#include "client/partition/check_input.h"
#include "client/partition/finite.h"
#include "client/partition/slot_grouping.h"
#include "client/partition/table_facts.h"
#include "optimizer/span_ops.h"

namespace cairn::client {
namespace {

// Kept by each calling thread: a warm push allocates nothing here.
struct Workspace {
  SlotGrouping groups;
  SeenKeys seen;
  std::vector<uint32_t> row_of;     // grouped key → row of its frame; kRepeated: to be added to it
  std::vector<std::byte*> rows_of;  // group → values of its frame
  std::vector<uint32_t> cursors;
};
constexpr uint32_t kRepeated = uint32_t{1} << 31;  // a frame has fewer rows (kMaxBodyBytes)

class SparsePartition {
 public:
  SparsePartition(const PartitionInput& input, const Routes& routes, const Directions& what, BufferPool& pool,
                  Workspace& work)
      : input_(input),
        routes_(routes),
        what_(what),
        pool_(pool),
        work_(work),
        row_bytes_(input.table->spec.dim * ElementBytes(input.table->spec)) {}

  Result<Drafts> Run(const EarlyDraft& early) {
    work_.groups.Build(input_.keys, static_cast<uint32_t>(input_.state->slots.size()), routes_);
    if (what_.push) {
      work_.row_of.resize(input_.keys.size());
      work_.rows_of.resize(routes_.slots().size());
    }
    if (Status s = CheckGroups(); !s.ok()) return s;
    if (early && GoesInParts()) {
      ForEachDraft([&](Draft& draft, const GroupSpan& span) {
        TakeBuffer(draft, span);
        Gather(draft, span);
        early(std::move(draft));
      });
      return Drafts();
    }
    ForEachDraft([&](Draft& draft, const GroupSpan& span) {
      if (what_.push) TakeBuffer(draft, span);
      drafts_.push_back(std::move(draft));
    });
    if (what_.push && !FillValues()) return NotFiniteError(input_);
    return std::move(drafts_);
  }

 private:
  // Groups of a draft, where its keys begin, and whether some of them came twice.
  struct GroupSpan {
    uint32_t begin = 0, end = 0, at = 0;
    bool repeats = false;
  };

  // A slot's part is never split, so each must fit into a frame.
  Status CheckGroups() const {
    for (uint32_t i = 0; i < routes_.slots().size(); ++i) {
      const uint64_t rows = work_.groups.count(i);
      if (Status s = CheckFrameBytes(input_, rows * row_bytes_, rows, 1); !s.ok()) return s;
    }
    return Status::Ok();
  }

  // Large, and certain to be accepted before the first draft has its values: all of it is finite, and so
  // are the sums of repeated rows. The servers work on the first drafts while the later ones are made.
  bool GoesInParts() const {
    const std::span<const std::byte> values = input_.values.whole();
    if (!what_.push || values.size() <= input_.part_bytes) return false;
    if (!ChecksFinite(input_.table->spec)) return true;
    if (reinterpret_cast<uintptr_t>(values.data()) % alignof(float) != 0) return false;
    // 2^32 of these are still finite, and a frame has fewer rows.
    constexpr float kSummable = 0x1p90f;
    return optimizer::AllBelow({reinterpret_cast<const float*>(values.data()), values.size() / sizeof(float)},
                               kSummable);
  }

  template <class Take>  // void(Draft&, const GroupSpan&)
  void ForEachDraft(Take take) {
    for (const Routes::Thread& thread : routes_.threads()) {
      for (uint32_t first = thread.first; first < thread.end;) {
        Draft draft;
        const GroupSpan span = MakeDraft(thread, &first, draft);
        if (!draft.entries.empty()) take(draft, span);
      }
    }
  }

  // Groups from *first on until the target is passed; moves *first behind them.
  GroupSpan MakeDraft(const Routes::Thread& thread, uint32_t* first, Draft& draft) {
    draft.part.server = thread.server;
    draft.part.thread = thread.thread;
    const uint32_t begin = *first;
    uint64_t rows = 0, slots = 0;
    for (; *first < thread.end && rows * row_bytes_ < input_.part_bytes; ++*first) {
      const uint64_t more = work_.groups.count(*first);
      if (more == 0) continue;
      if (!CheckFrameBytes(input_, (rows + more) * row_bytes_, rows + more, slots + 1).ok()) break;
      rows += more;
      ++slots;
    }
    GroupSpan span{begin, *first, work_.groups.first(begin)};
    if (rows == 0) return span;
    draft.entries.reserve(slots);
    if (what_.push) {
      Unite(draft, span);
      span.repeats = draft.keys.size() < rows;
      repeats_ |= span.repeats;
    } else {
      Ask(draft, span, rows);
    }
    if (what_.pull) {
      draft.part.out = input_.out.whole().data();
      draft.part.row_bytes = static_cast<uint32_t>(row_bytes_);
    }
    return span;
  }

  // A pull: keys as they are, each row of the reply goes where its key stood.
  void Ask(Draft& draft, const GroupSpan& span, uint64_t rows) {
    for (uint32_t i = span.begin; i < span.end; ++i) {
      if (work_.groups.count(i) == 0) continue;
      draft.entries.push_back({routes_.slots()[i], work_.groups.count(i), what_.column});
    }
    draft.keys = work_.groups.keys().subspan(span.at, rows);
    const auto places = work_.groups.places().subspan(span.at, rows);
    draft.part.rows.assign(places.begin(), places.end());
  }

  // A push: repeated keys become one row. Keys are moved together where they lie.
  void Unite(Draft& draft, const GroupSpan& span) {
    if (what_.pull) draft.part.rows.reserve(work_.groups.first(span.end) - span.at);
    uint32_t unique = 0;
    const std::span<RowKey> kept = work_.groups.keys().subspan(span.at);
    for (uint32_t i = span.begin; i < span.end; ++i) {
      if (work_.groups.count(i) == 0) continue;
      const uint32_t before = unique;
      unique = UniteGroup(draft, i, kept, unique);
      draft.entries.push_back({routes_.slots()[i], unique - before, 0});
    }
    draft.keys = kept.first(unique);
  }

  void TakeBuffer(Draft& draft, const GroupSpan& span) {
    draft.owned = pool_.Get(draft.keys.size() * row_bytes_);
    draft.values = {draft.owned.bytes()};
    for (uint32_t i = span.begin; i < span.end; ++i) work_.rows_of[i] = draft.owned.data();
  }

  // Slot by slot: slower than in the caller's order, as FillValues does it, but nobody waits for it.
  void Gather(Draft& draft, const GroupSpan& span) const {
    const std::byte* const from = input_.values.whole().data();
    std::byte* const to = draft.owned.data();
    const uint32_t count = work_.groups.first(span.end) - span.at;
    const auto places = work_.groups.places().subspan(span.at, count);
    const auto rows = std::span(work_.row_of).subspan(span.at, count);
    constexpr size_t kFetchedAhead = 16, kLine = 64;
    for (size_t i = 0; i < count; ++i) {
      if (i + kFetchedAhead < count) {
        const std::byte* next = from + size_t{places[i + kFetchedAhead]} * row_bytes_;
        for (size_t at = 0; at < row_bytes_; at += kLine) __builtin_prefetch(next + at);
      }
      const std::byte* const row = from + size_t{places[i]} * row_bytes_;
      if (!span.repeats) {
        std::memcpy(to + i * row_bytes_, row, row_bytes_);
      } else {
        Put(to + size_t{rows[i] & ~kRepeated} * row_bytes_, row, (rows[i] & kRepeated) != 0);
      }
    }
  }

  // The row of a key that came before is added to, or replaced in an assign.
  void Put(std::byte* to, const std::byte* row, bool repeated) const {
    if (!repeated || input_.op != PushOp::kUpdate) {
      std::memcpy(to, row, row_bytes_);
    } else if (input_.table->spec.element == ElementType::kFloat32) {
      AddTo<float>(to, row, row_bytes_);
    } else {
      AddTo<uint64_t>(to, row, row_bytes_);
    }
  }

  // Returns the number of rows, `row` and the new ones.
  uint32_t UniteGroup(Draft& draft, uint32_t group, std::span<RowKey> kept, uint32_t row) {
    const std::span<const RowKey> keys = work_.groups.keys();
    const uint32_t first = work_.groups.first(group), count = work_.groups.count(group);
    work_.seen.Start(count);
    for (uint32_t k = first; k < first + count; ++k) {
      const RowKey key = keys[k];
      const uint32_t given = work_.seen.Insert(key, kept.data(), row);
      const bool repeated = given != row;
      work_.row_of[k] = given | (repeated ? kRepeated : 0);
      kept[row] = key;  // at or before k: already read
      if (what_.pull) AddTarget(draft.part, given, repeated, work_.groups.places()[k]);
      row += repeated ? 0 : 1;
    }
    return row;
  }

  static void AddTarget(ShardPart& part, uint32_t row, bool repeated, uint32_t place) {
    if (repeated) {
      part.repeats.push_back({row, place});
    } else {
      part.rows.push_back(place);
    }
  }

  // Reads the caller's rows in their order and writes one stream per slot: about as fast as a plain
  // copy, where gathering slot by slot would miss the cache at every row.
  bool FillValues() {
    return input_.table->spec.element == ElementType::kFloat32 ? Fill<float>() : Fill<uint64_t>();
  }

  template <class Element>
  bool Fill() {
    const bool check = ChecksFinite(input_.table->spec);
    const bool sums = input_.op == PushOp::kUpdate;
    work_.groups.CopyFirsts(work_.cursors);
    const std::span<const uint32_t> groups = work_.groups.group_of_key();
    const std::byte* from = input_.values.whole().data();
    bool finite = true;
    for (size_t i = 0; i < groups.size(); ++i, from += row_bytes_) {
      const uint32_t row = work_.row_of[work_.cursors[groups[i]]++];
      std::byte* to = work_.rows_of[groups[i]] + size_t{row & ~kRepeated} * row_bytes_;
      if (sums && (row & kRepeated) != 0) {
        AddTo<Element>(to, from, row_bytes_);
      } else if (check) {
        finite &= CopyFinite(to, from, row_bytes_);
      } else {
        std::memcpy(to, from, row_bytes_);
      }
    }
    // A sum is checked as a whole: NaN and Inf stay in it, and finite rows may overflow.
    for (size_t d = 0; check && sums && repeats_ && d < drafts_.size(); ++d)
      finite &= AllFinite(drafts_[d].values[0]);
    return finite;
  }

  const PartitionInput& input_;
  const Routes& routes_;
  const Directions& what_;
  BufferPool& pool_;
  Workspace& work_;
  const size_t row_bytes_;
  Drafts drafts_;
  bool repeats_ = false;  // in any of them
};

}  // namespace

Result<Drafts> DraftSparse(const PartitionInput& input, const Routes& routes, const Directions& what,
                           BufferPool& pool, const EarlyDraft& early) {
  // Taken out while it is used: whoever gets a draft early may come here again.
  thread_local Workspace kept;
  Workspace work = std::exchange(kept, {});
  Result<Drafts> drafts = SparsePartition(input, routes, what, pool, work).Run(early);
  kept = std::move(work);
  return drafts;
}

}  // namespace cairn::client
