// A disk in memory, for tests and the simulator: what is not synced when the power fails is lost, torn,
// or written in another order; and a sync may fail. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "cairn/status.h"
#include "scheduler/metastore/log_files.h"

namespace cairn::scheduler {

class MemoryDisk {
 public:
  enum class Fate { kFine, kSyncFails, kPowerFails };
  // What a power failure has left of what was written and not synced.
  enum class Left {
    kNothing,
    kPrefix,  // a torn write
    kSome,    // these sectors and not those: the file is as long as it was, with holes
    kAll,
  };
  static constexpr size_t kSectorBytes = 512;

  explicit MemoryDisk(uint64_t seed) : random_(seed) {}
  MemoryDisk(const MemoryDisk&) = delete;
  MemoryDisk& operator=(const MemoryDisk&) = delete;

  // Asked before each write, sync or rename (`sync`: which of them), and again behind each sync.
  void set_fate(std::function<Fate(bool sync)> fate) { fate_ = std::move(fate); }
  // Told what a power failure has left, where anything was at stake.
  void set_on_left(std::function<void(Left)> on_left) { on_left_ = std::move(on_left); }

  // The disk as one process sees it; worthless once the power has failed.
  std::unique_ptr<LogFiles> Files() { return std::make_unique<View>(*this, starts_); }
  bool down() const { return down_; }
  void PowerOn() { down_ = false; }

  void FailPower() { FailPower(static_cast<Left>(random_.Below(4))); }
  void FailPower(Left left) {
    down_ = true;
    ++starts_;
    bool at_stake = false;
    // The directory's own changes reach the disk in their order.
    const size_t kept = random_.Below(pending_.size() + 1);
    for (size_t i = 0; i < kept; ++i) pending_[i](durable_names_);
    pending_.clear();
    for (auto& [name, inode] : durable_names_) at_stake |= inode->Settle(left, random_);
    names_ = durable_names_;
    if (at_stake && on_left_) on_left_(left);
  }

 private:
  struct Range {
    size_t from = 0, to = 0;
  };
  struct Inode {
    std::vector<std::byte> content;  // what processes see
    std::vector<std::byte> durable;
    std::vector<Range> dirty;  // in the order of writing

    void Write(const Range& range) {
      if (durable.size() < range.to) durable.resize(range.to);
      std::copy(content.begin() + static_cast<ptrdiff_t>(range.from),
                content.begin() + static_cast<ptrdiff_t>(range.to),
                durable.begin() + static_cast<ptrdiff_t>(range.from));
    }
    void Sync() {
      for (const Range& range : dirty) Write(range);
      dirty.clear();
    }
    // The power has failed. True if anything was not on the disk.
    bool Settle(Left left, Random& random) {
      const bool any = !dirty.empty();
      for (const Range& range : dirty) {
        if (left == Left::kAll) Write(range);
        if (left == Left::kPrefix) Write({range.from, range.from + random.Below(range.to - range.from)});
        if (left != Left::kSome) continue;
        durable.resize(std::max(durable.size(), range.to));
        for (size_t at = range.from; at < range.to;) {
          const size_t end = std::min(range.to, (at / kSectorBytes + 1) * kSectorBytes);
          if (random.Chance(0.5)) Write({at, end});
          at = end;
        }
      }
      dirty.clear();
      content = durable;
      return any;
    }
  };
  using Names = std::map<std::string, std::shared_ptr<Inode>>;

  Status Gone() const { return {Code::kIo, "the power has failed"}; }
  // False: the power fails now. `fails`: the sync does.
  bool Step(bool sync, bool* fails = nullptr) {
    const Fate fate = fate_ ? fate_(sync) : Fate::kFine;
    if (fate == Fate::kPowerFails) FailPower();
    if (fails != nullptr) *fails = fate == Fate::kSyncFails;
    return fate != Fate::kPowerFails;
  }

  class File final : public LogFile {
   public:
    File(MemoryDisk& disk, uint64_t start, std::shared_ptr<Inode> inode)
        : disk_(disk), start_(start), inode_(std::move(inode)) {}
    Status Append(std::span<const std::byte> bytes) override {
      if (start_ != disk_.starts_ || !disk_.Step(false)) return disk_.Gone();
      const size_t from = inode_->content.size();
      inode_->content.insert(inode_->content.end(), bytes.begin(), bytes.end());
      if (!bytes.empty()) inode_->dirty.push_back({from, from + bytes.size()});
      return Status::Ok();
    }
    // After a failure the system takes what it could not write for written: a later sync is fine with it.
    Status Sync() override {
      bool fails = false;
      if (start_ != disk_.starts_ || !disk_.Step(true, &fails)) return disk_.Gone();
      if (fails) {
        inode_->dirty.clear();
        return {Code::kIo, "can't sync the file: the disk has an error"};
      }
      inode_->Sync();
      return disk_.Step(true) ? Status::Ok() : disk_.Gone();
    }
    Result<std::vector<std::byte>> ReadAll() override {
      if (start_ != disk_.starts_) return disk_.Gone();
      return inode_->content;
    }

   private:
    MemoryDisk& disk_;
    const uint64_t start_;
    const std::shared_ptr<Inode> inode_;
  };

  class View final : public LogFiles {
   public:
    View(MemoryDisk& disk, uint64_t start) : disk_(disk), start_(start) {}
    Result<std::unique_ptr<LogFile>> Open(const std::string& name) override {
      if (start_ != disk_.starts_) return disk_.Gone();
      auto it = disk_.names_.find(name);
      if (it == disk_.names_.end()) return std::unique_ptr<LogFile>();
      return std::unique_ptr<LogFile>(std::make_unique<File>(disk_, start_, it->second));
    }
    Result<std::unique_ptr<LogFile>> Create(const std::string& name) override {
      auto inode = std::make_shared<Inode>();
      const Status status = Change([=](Names& names) { names[name] = inode; });
      if (!status.ok()) return status;
      return std::unique_ptr<LogFile>(std::make_unique<File>(disk_, start_, inode));
    }
    Status Remove(const std::string& name) override {
      return Change([=](Names& names) { names.erase(name); });
    }
    Status Rename(const std::string& from, const std::string& to) override {
      if (!disk_.names_.contains(from)) return {Code::kIo, "there is no " + from};
      return Change([=](Names& names) {
        if (names.contains(from)) names[to] = names[from];
        names.erase(from);
      });
    }
    Status Sync() override {
      bool fails = false;
      if (start_ != disk_.starts_ || !disk_.Step(true, &fails)) return disk_.Gone();
      if (fails) return {Code::kIo, "can't sync the directory: the disk has an error"};
      disk_.durable_names_ = disk_.names_;
      disk_.pending_.clear();
      return disk_.Step(true) ? Status::Ok() : disk_.Gone();
    }
    std::string PathOf(const std::string& name) const override { return name; }

   private:
    Status Change(std::function<void(Names&)> change) {
      if (start_ != disk_.starts_ || !disk_.Step(false)) return disk_.Gone();
      change(disk_.names_);
      disk_.pending_.push_back(std::move(change));
      return Status::Ok();
    }
    MemoryDisk& disk_;
    const uint64_t start_;
  };

  Random random_;
  std::function<Fate(bool)> fate_;
  std::function<void(Left)> on_left_;
  Names names_, durable_names_;
  std::vector<std::function<void(Names&)>> pending_;  // of the directory, since it was last synced
  uint64_t starts_ = 0;
  bool down_ = false;
};

}  // namespace cairn::scheduler
