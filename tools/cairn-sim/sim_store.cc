#include "sim_store.h"

namespace cairn::sim {

Result<std::vector<std::vector<std::byte>>> SimStore::Load() {
  dying_ = false;
  return records_;
}

Status SimStore::Append(std::span<const std::byte> record) { return Write(record, false); }
Status SimStore::Replace(std::span<const std::byte> record) { return Write(record, true); }

Status SimStore::Write(std::span<const std::byte> record, bool replace) {
  if (dying_) return {Code::kIo, "the process is gone"};
  const Fate fate = hooks_.fate();
  dying_ = fate != Fate::kFine;
  if (fate == Fate::kLostThenCrash || fate == Fate::kTornThenCrash) {
    hooks_.crash();
    return {Code::kIo, "the disk went away"};
  }
  if (replace) records_.clear();
  records_.emplace_back(record.begin(), record.end());
  hooks_.on_durable(record);
  if (fate == Fate::kDurableThenCrash) hooks_.crash();
  return Status::Ok();
}

}  // namespace cairn::sim
