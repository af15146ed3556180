// Dense tables: a slot's part is its blocks in ascending order, packed. Async pushes are copied
// (the caller goes on at once), sync contributions refer to the caller's array.
#include <cstring>
#include <utility>

#include "client/draft.h"
#include "client/finite.h"
#include "wire/cluster_state.h"

namespace cairn::client {
namespace {

// Adjacent pieces become one: fewer pieces to write and to scatter.
template <class Byte>
void Append(std::vector<std::span<Byte>>& pieces, std::span<Byte> piece) {
  if (!pieces.empty() && pieces.back().data() + pieces.back().size() == piece.data()) {
    pieces.back() = {pieces.back().data(), pieces.back().size() + piece.size()};
  } else {
    pieces.push_back(piece);
  }
}

class DensePartition {
 public:
  DensePartition(const PartitionInput& input, const Routes& routes, const Directions& what, BufferPool& pool)
      : input_(input),
        routes_(routes),
        what_(what),
        pool_(pool),
        width_(ElementBytes(input.table->spec)),
        layout_(wire::DenseLayout::Of(input.table->id, input.table->spec.size,
                                      static_cast<uint32_t>(input.state->slots.size()))),
        runs_(wire::RunsBySlot(layout_)) {}

  Result<std::vector<Draft>> Run() {
    if (what_.push && what_.borrow && ChecksFinite(input_.table->spec) && !AllFinite(input_.values)) {
      return NotFiniteError(input_);
    }
    for (const Routes::Thread& thread : routes_.threads()) {
      const std::span<const uint32_t> slots = routes_.SlotsOf(thread);
      for (size_t first = 0; first < slots.size();) {
        if (Status s = AddDraft(thread, slots, &first); !s.ok()) return s;
      }
    }
    return std::move(drafts_);
  }

 private:
  // Slots from slots[*first] on until the target is passed; moves *first behind them.
  Status AddDraft(const Routes::Thread& thread, std::span<const uint32_t> slots, size_t* first) {
    Draft draft;
    draft.part.server = thread.server;
    draft.part.thread = thread.thread;
    size_t bytes = 0;
    for (; *first < slots.size() && bytes < kFrameTargetBytes; ++*first) {
      const uint32_t slot = slots[*first];
      uint64_t count = 0;
      for (const wire::DenseRun& run : runs_[slot]) count += run.count;
      if (count == 0) continue;
      if (Status s = CheckFrameBytes(input_, bytes + count * width_, 0, draft.entries.size() + 1); !s.ok()) {
        if (!draft.entries.empty()) break;
        return s;
      }
      draft.entries.push_back({slot, static_cast<uint32_t>(count), 0});
      bytes += count * width_;
    }
    if (draft.entries.empty()) return Status::Ok();
    if (what_.push && what_.borrow) Borrow(draft);
    if (what_.push && !what_.borrow && !Copy(draft, bytes)) return NotFiniteError(input_);
    if (what_.pull) Target(draft);
    drafts_.push_back(std::move(draft));
    return Status::Ok();
  }

  template <class Use>
  void ForEachRun(const Draft& draft, Use use) const {
    for (const wire::SlotEntry& entry : draft.entries) {
      for (const wire::DenseRun& run : runs_[entry.slot]) use(run.begin * width_, run.count * width_);
    }
  }

  void Borrow(Draft& draft) const {
    ForEachRun(draft,
               [&](size_t at, size_t bytes) { Append(draft.values, input_.values.subspan(at, bytes)); });
  }

  void Target(Draft& draft) const {
    ForEachRun(draft,
               [&](size_t at, size_t bytes) { Append(draft.part.into, input_.out.subspan(at, bytes)); });
  }

  bool Copy(Draft& draft, size_t total) {
    draft.owned = pool_.Get(total);
    std::byte* to = draft.owned.data();
    const bool check = ChecksFinite(input_.table->spec);
    bool finite = true;
    ForEachRun(draft, [&](size_t at, size_t bytes) {
      if (check) {
        finite &= CopyFinite(to, input_.values.data() + at, bytes);
      } else {
        std::memcpy(to, input_.values.data() + at, bytes);
      }
      to += bytes;
    });
    draft.values = {draft.owned.bytes()};
    return finite;
  }

  const PartitionInput& input_;
  const Routes& routes_;
  const Directions& what_;
  BufferPool& pool_;
  const size_t width_;
  const wire::DenseLayout layout_;
  const std::vector<std::vector<wire::DenseRun>> runs_;
  std::vector<Draft> drafts_;
};

}  // namespace

Result<std::vector<Draft>> DraftDense(const PartitionInput& input, const Routes& routes,
                                      const Directions& what, BufferPool& pool) {
  return DensePartition(input, routes, what, pool).Run();
}

}  // namespace cairn::client
