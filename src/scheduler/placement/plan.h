// Where everything will be once what is under way is done: the plan's ledger. It counts what each server
// will own, begins single copies, moves and handovers, and keeps both in step. What to begin is decided by
// repair.h (slots that lack an owner or have one too many), balance.h (the servers' shares) and
// traffic_exchange.h (their work). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/placement/placement.h"
#include "scheduler/rules/durable.h"
#include "wire/cluster_state.h"

namespace cairn::scheduler {

class Plan {
 public:
  // Nothing is moved while every server's bytes are so near to its share.
  static constexpr double kSlack = 0.05;

  struct Server {
    uint32_t index = 0;
    double weight = 1;  // its threads
    bool stays = true, avoided = false;
    double load = 0;         // bytes that it will own
    uint32_t primaries = 0;  // that it will have
    uint32_t copies_in = 0, copies_out = 0, handing_over = 0;
    std::vector<double> threads;  // bytes of each
    double ratio() const { return load / weight; }
  };

  // Forgets the moves that are off, and counts. All three must outlive it.
  Plan(DurableState& d, const SlotBytes& bytes, const PlacementLimits& limits);

  // A server's place in servers() stays the same.
  const std::vector<Server>& servers() const { return servers_; }
  size_t PlaceOf(uint32_t index) const { return at_[index]; }
  const Server& At(uint32_t index) const { return servers_[at_[index]]; }
  uint32_t slots() const { return static_cast<uint32_t>(d_.state.slots.size()); }
  const wire::SlotOwner& Slot(uint32_t slot) const { return d_.state.slots[slot]; }
  double Cost(uint32_t slot) const;
  double average_cost() const { return average_; }
  double weights() const { return weights_; }  // of the servers that stay
  uint32_t wanted() const { return wanted_; }  // owners of each slot
  uint32_t min_in_sync() const { return d_.state.min_in_sync; }
  const PlacementLimits& limits() const { return limits_; }

  uint32_t StayingOwners(const wire::SlotOwner& owner) const;
  // Owners in sync that stay and are heard; without the one on `except`.
  uint32_t SafeOwners(const wire::SlotOwner& owner, uint32_t except) const;
  bool Settled(uint32_t slot) const;  // it has its owners, all in sync, and nothing is under way
  // The server (index) whose ownership of the slot is to end, as has been recorded.
  std::optional<uint16_t> MovingFrom(uint32_t slot) const;
  // Whoever becomes the primary of a slot that moves away from its own: the one that it is copied to.
  const wire::Backup* Successor(uint32_t slot) const;

  // `thread`: of the new owner; without it the one with the fewest bytes.
  void BeginCopy(uint32_t slot, size_t to, std::optional<uint32_t> thread = std::nullopt);
  // A copy, after which `from` lets go.
  void BeginMove(uint32_t slot, size_t from, size_t to, std::optional<uint32_t> thread = std::nullopt);
  // Requires a backup in sync at `heir` (index).
  void HandOver(uint32_t slot, uint32_t heir);
  // The slot has an owner too many, and it is this one (index).
  void NameSurplus(uint32_t slot, uint16_t from);
  // Requires a backup at `server` (index).
  void Drop(uint32_t slot, uint32_t server);
  void NoteMovedForTraffic(uint32_t slot) { change_.for_traffic.push_back(slot); }
  const PlacementChange& change() const { return change_; }

 private:
  Server& Mutable(uint32_t index) { return servers_[at_[index]]; }
  void ForgetOldMoves();
  void Tally();

  DurableState& d_;
  const SlotBytes& bytes_;
  const PlacementLimits& limits_;
  const uint32_t wanted_;
  std::vector<Server> servers_;
  std::vector<size_t> at_;  // server index → place in servers_
  double weights_ = 0;
  double average_ = 0;
  PlacementChange change_;
};

}  // namespace cairn::scheduler
