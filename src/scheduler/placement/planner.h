// Plans where slots should be (rule 46): placement.h has what it is asked, placement.cc the owners that
// slots lack or have too many, balance.cc the shares of the servers, traffic.cc their work (rule 53).
//
// It looks at where everything will be once what is under way is done, and begins what is missing:
// first the end of finished moves, then owners that slots lack, then moves from servers that own more
// than their share to those that own less, then handovers, so that each has its share of primaries
// too. A server's share is by its threads.
//
// It comes to rest: a move is begun only if it brings two servers nearer to each other, a handover
// only if the server that it goes to has fewer primaries then than the other had; and where a move
// comes from is remembered (moving_from), so that its end undoes nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/placement/placement.h"
#include "scheduler/placement/traffic.h"
#include "scheduler/rules/durable.h"
#include "scheduler/rules/owners.h"

namespace cairn::scheduler {

class Planner {
 public:
  Planner(DurableState& d, const SlotBytes& bytes, const PlacementLimits& limits);
  PlacementChange Run(const SlotTraffic* traffic);
  uint32_t AboutCopiesLeft();

 private:
  friend class ReferencePlanner;  // balance_reference.h, for a test

  // Nothing is moved while every server's bytes are so near to its share.
  static constexpr double kSlack = 0.05;
  // Of twice the difference of two servers: a move of more would hardly even them out.
  static constexpr double kMostOfDifference = 0.9;
  // A slot costs something even while it is empty: what can't be told apart is spread by number.
  static constexpr double kEmptySlotBytes = 4096;

  // Shard threads with no more than this many times the mean's work are left as they are.
  static constexpr double kTrafficGoal = 1.10;
  // What an exchange must bring at least, in parts of a slot's work on average.
  static constexpr double kLeastGain = 0.25;
  // How many of the threads with the least work a hot one is compared with.
  static constexpr size_t kTakersTried = 8;

  struct Server {
    uint32_t index = 0;
    double weight = 1;
    bool stays = true, avoided = false;
    double load = 0;         // bytes that it will own
    uint32_t primaries = 0;  // that it will have
    uint32_t copies_in = 0, copies_out = 0, handing_over = 0;
    std::vector<double> threads;  // bytes of each
    double ratio() const { return load / weight; }
  };
  struct Candidate {  // a settled slot that might be moved
    double cost = 0;
    uint32_t slot = 0;
    std::array<uint16_t, wire::kMaxBackups> owners{};  // as many as are wanted, the primary first
  };
  struct Move {
    uint32_t slot = 0;
    size_t to = 0;
    double off = 0;  // how far its size is from the best, in bytes
  };

  struct Link {  // slots that one server could hand over to another
    size_t to = 0;
    std::vector<uint32_t> slots;
  };
  struct Step {  // a handover
    uint32_t slot = 0;
    size_t to = 0;
  };

  struct Thread {  // a shard thread, by its work
    size_t server = 0;  // place in servers_
    uint32_t thread = 0;
    double work = 0;
    std::vector<uint32_t> slots;  // that it owns
  };
  // `slot` goes from the hot thread to the other one, `back` the other way, if there is one.
  struct Exchange {
    uint32_t slot = 0;
    std::optional<uint32_t> back;
    size_t to = 0;           // place in threads_
    bool handovers = false;  // of primaries; else copies
    double off = 0;          // how far it is from the best
  };
  struct Search;  // traffic.cc: for an exchange between two threads

  Server& At(uint32_t index) { return servers_[at_[index]]; }
  double Cost(uint32_t slot) const {
    return kEmptySlotBytes + (slot < bytes_.size() ? static_cast<double>(bytes_[slot]) : 0.0);
  }
  wire::SlotOwner& Slot(uint32_t slot) { return d_.state.slots[slot]; }
  uint32_t StayingOwners(const wire::SlotOwner& owner);
  // Owners in sync that stay and are heard; without the one on `except`.
  uint32_t SafeOwners(const wire::SlotOwner& owner, uint32_t except);
  bool Settled(uint32_t slot);  // it has its owners, all in sync, and nothing is under way

  bool Repair();  // everything but the shares; false: some slot still lacks an owner
  void ForgetOldMoves();
  void Tally();
  void NameSurplus();
  void Shrink(uint32_t slot);
  bool KeptForNow(uint32_t slot, uint32_t server);
  void LetLeaverGo(const Server& leaver);
  bool LetGo(uint32_t slot, uint32_t server);
  bool Grow();
  void BeginCopy(uint32_t slot, Server& to, std::optional<uint32_t> thread = std::nullopt);
  void FindCandidates();
  void MoveBytes();
  template <class Takers>
  std::optional<Move> BestMoveFrom(const Server& from, const Takers& takers, double mean);
  void MovePrimaries();
  void FindPossibleHandovers();
  std::vector<Step> PathForOnePrimary(size_t from);
  void HandOver(uint32_t slot, uint32_t heir);
  // Whoever becomes the primary of a slot that moves away from its own: the one that it is copied to.
  const wire::Backup* Successor(uint32_t slot);
  void BeginMove(uint32_t slot, Server& from, Server& to, std::optional<uint32_t> thread = std::nullopt);

  void MoveTraffic(const SlotTraffic& traffic);
  bool TallyTraffic();  // false: something is under way, or there is nothing to do
  double WorkOf(uint32_t slot, const Server& owner);
  bool MayMove(uint32_t slot);
  std::optional<Exchange> BestExchange(size_t from, const std::set<std::pair<double, size_t>>& ranked);
  void LookForHandovers(const Search& search, std::optional<Exchange>& best);
  void LookForCopies(const Search& search, std::optional<Exchange>& best);
  bool BytesFit(const Server& from, const Server& to, double there, double back) const;
  bool MayCopy(uint32_t slot, const Server& to, std::optional<uint32_t> back, const Server& from);
  void Carry(size_t from, const Exchange& exchange);

  DurableState& d_;
  const SlotBytes& bytes_;
  const PlacementLimits& limits_;
  const uint32_t wanted_;
  std::vector<Server> servers_;
  std::vector<size_t> at_;                      // server index → place in servers_
  double weights_ = 0;                          // of those that stay
  double average_ = 0;                          // cost of a slot
  std::vector<std::vector<Candidate>> candidates_;  // by owner, as they were before any move
  std::vector<bool> moved_;                         // by slot, since then
  std::vector<std::vector<Link>> links_;        // by the server that hands over, in the order of the others
  std::vector<double> in_vain_;
  std::vector<size_t> came_from_;
  const SlotTraffic* traffic_ = nullptr;
  std::vector<Thread> threads_;  // of the servers that stay
  double mean_work_ = 0;         // of a thread
  double least_gain_ = 0;
  double mean_load_ = 0;         // of a weight of 1
  PlacementChange change_;
};

}  // namespace cairn::scheduler
