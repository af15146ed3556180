#include "client/partition/dense_partition.h"

#include <array>
#include <cstring>
#include <utility>

#include "client/partition/check_input.h"
#include "client/partition/finite.h"
#include "client/partition/table_facts.h"

namespace cairn::client {
namespace {

// What is sent for pieces without memory.
constexpr size_t kZeroBytes = 64 * 1024;
alignas(64) constinit const std::array<std::byte, kZeroBytes> kZeros{};

// Adjacent pieces become one: fewer pieces to write and to scatter.
template <class Byte>
void Append(RecycledVector<std::span<Byte>>& pieces, std::span<Byte> piece) {
  const bool skips = piece.data() == nullptr;
  const bool adjacent = !pieces.empty() && (pieces.back().data() == nullptr) == skips &&
                        (skips || pieces.back().data() + pieces.back().size() == piece.data());
  if (adjacent) {
    pieces.back() = {pieces.back().data(), pieces.back().size() + piece.size()};
  } else {
    pieces.push_back(piece);
  }
}

class DensePartition {
 public:
  DensePartition(const PartitionInput& input, const DensePlan& plan, const Directions& what, BufferPool& pool)
      : input_(input), plan_(plan), what_(what), pool_(pool), width_(ElementBytes(input.table->spec)) {}

  Result<Drafts> Run() {
    if (what_.push && what_.borrow && ChecksFinite(input_.table->spec)) {
      if (Status s = CheckFinite(input_); !s.ok()) return s;
    }
    for (const DensePlan::Thread& thread : plan_.threads()) {
      const std::span<const DensePlan::Slot> slots = plan_.SlotsOf(thread);
      for (size_t first = 0; first < slots.size();) {
        if (Status s = AddDraft(thread, slots, &first); !s.ok()) return s;
      }
    }
    return std::move(drafts_);
  }

 private:
  // Slots from slots[*first] on until the target is passed; moves *first behind them.
  Status AddDraft(const DensePlan::Thread& thread, std::span<const DensePlan::Slot> slots, size_t* first) {
    Draft draft;
    draft.part.server = thread.server;
    draft.part.thread = thread.thread;
    const size_t begin = *first;
    size_t bytes = 0;
    for (; *first < slots.size() && bytes < input_.part_bytes; ++*first) {
      const DensePlan::Slot& slot = slots[*first];
      const uint64_t more = slot.elements * width_;
      if (Status s = CheckFrameBytes(input_, bytes + more, 0, draft.entries.size() + 1); !s.ok()) {
        if (!draft.entries.empty()) break;
        return s;
      }
      draft.entries.push_back({slot.slot, static_cast<uint32_t>(slot.elements), what_.column});
      bytes += more;
    }
    const std::span<const DensePlan::Slot> taken = slots.subspan(begin, *first - begin);
    if (what_.push && what_.borrow) Borrow(taken, draft);
    if (what_.push && !what_.borrow) {
      if (Status s = Copy(taken, draft, bytes); !s.ok()) return s;
    }
    if (what_.pull) Target(taken, draft);
    drafts_.push_back(std::move(draft));
    return Status::Ok();
  }

  // use(piece) for every piece of the array that these slots are made of.
  template <class Byte, class Use>
  void ForEachPiece(std::span<const DensePlan::Slot> slots, const PieceList<Byte>& array, Use use) const {
    for (const DensePlan::Slot& slot : slots) {
      for (const wire::DenseRun& run : plan_.RunsOf(slot)) {
        array.ForEach(run.begin * width_, run.count * width_, use);
      }
    }
  }

  void Borrow(std::span<const DensePlan::Slot> slots, Draft& draft) const {
    ForEachPiece(slots, input_.values, [&](std::span<const std::byte> piece) {
      if (piece.data() != nullptr) return Append(draft.values, piece);
      for (size_t left = piece.size(); left > 0;) {
        const size_t bytes = std::min(left, kZeroBytes);
        draft.values.push_back(std::span<const std::byte>(kZeros).first(bytes));
        left -= bytes;
      }
    });
  }

  void Target(std::span<const DensePlan::Slot> slots, Draft& draft) const {
    ForEachPiece(slots, input_.out, [&](std::span<std::byte> piece) { Append(draft.part.into, piece); });
  }

  Status Copy(std::span<const DensePlan::Slot> slots, Draft& draft, size_t total) {
    draft.owned = pool_.Get(total);
    std::byte* to = draft.owned.data();
    const bool check = ChecksFinite(input_.table->spec);
    bool finite = true;
    ForEachPiece(slots, input_.values, [&](std::span<const std::byte> piece) {
      if (piece.data() == nullptr) {
        std::memset(to, 0, piece.size());
      } else if (check) {
        finite &= CopyFinite(to, piece.data(), piece.size());
      } else {
        std::memcpy(to, piece.data(), piece.size());
      }
      to += piece.size();
    });
    draft.values = {draft.owned.bytes()};
    return finite ? Status::Ok() : CheckFinite(input_);
  }

  const PartitionInput& input_;
  const DensePlan& plan_;
  const Directions& what_;
  BufferPool& pool_;
  const size_t width_;
  Drafts drafts_;
};

}  // namespace

Result<Drafts> DraftDense(const PartitionInput& input, const Directions& what, BufferPool& pool) {
  if (input.plan != nullptr && input.plan->Fits(*input.table, *input.state)) {
    return DensePartition(input, *input.plan, what, pool).Run();
  }
  const DensePlan plan(*input.table, *input.state);
  return DensePartition(input, plan, what, pool).Run();
}

}  // namespace cairn::client
