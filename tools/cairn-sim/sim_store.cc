#include "sim_store.h"

#include <utility>

namespace cairn::sim {

namespace {
// `faulted`, where given, is set once anything goes wrong.
void Arm(scheduler::MemoryDisk& disk, const SimStore::Hooks& hooks, bool* faulted = nullptr) {
  disk.set_fate([&hooks, faulted](bool sync) {
    const auto fate = hooks.fate(sync);
    if (fate == scheduler::MemoryDisk::Fate::kPowerFails) hooks.dying();
    if (faulted != nullptr && fate != scheduler::MemoryDisk::Fate::kFine) *faulted = true;
    return fate;
  });
}
}  // namespace

SimStore::SimStore(uint64_t seed, Hooks hooks)
    : hooks_(std::move(hooks)), random_(Mix64(seed, 1)), disk_(seed) {
  Arm(disk_, hooks_);
  disk_.set_on_left([this](scheduler::MemoryDisk::Left left) { hooks_.on_left(left); });
}

Result<std::vector<std::vector<std::byte>>> SimStore::Load() {
  disk_.PowerOn();
  log_ = std::make_unique<scheduler::LocalLog>(disk_.Files());
  bool faulted = false;
  Arm(disk_, hooks_, &faulted);
  auto records = log_->Load();
  Arm(disk_, hooks_);
  if (!records.ok()) {
    if (!faulted) hooks_.on_unreadable(records.status().ToString());
    return records;
  }
  // Its writer died before it was told that this is durable.
  if (!records->empty() && records->back() != durable_) Tell(records->back());
  uncertain_ = false;
  return records;
}

Status SimStore::Append(std::span<const std::byte> record) {
  Status written = log_->Append(record);
  uncertain_ = !written.ok();
  if (written.ok()) Tell(record);
  return written;
}

Status SimStore::Replace(std::span<const std::byte> record) {
  Status written = log_->Replace(record);
  uncertain_ = !written.ok();
  if (written.ok()) Tell(record);
  return written;
}

void SimStore::MayFailPower() {
  if (random_.Chance(0.3)) disk_.FailPower();
}

void SimStore::Tell(std::span<const std::byte> record) {
  durable_.assign(record.begin(), record.end());
  hooks_.on_durable(record);
}

}  // namespace cairn::sim
