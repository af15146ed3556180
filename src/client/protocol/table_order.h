// The rounds and pulls of one sync table in the order of Submit. A round starts when the last one
// is closed everywhere; a pull asks for the values after the rounds submitted before it.
//
// A round in two phases is open from the start of its Contribute until its Decide is answered:
//
//          Next                 Ended              Decide             Ended
//   kNone ------> kContributing -----> kUndecided -------> kDeciding -------> kNone
//
// If the Contribute ends in an error, the owner decides at once (to skip). If it comes to its
// deadline (Expired), it goes on without its caller, who may Decide already: then the answers to
// both are awaited, in any order, before the next round starts.
//
// Pulls that come before the Decide ask for the values before the open round: it is not finished.
#pragma once

#include <cstdint>
#include <deque>

#include "base/check.h"
#include "base/ids.h"
#include "client/protocol/client_core.h"

namespace cairn::client {

class TableOrder {
 public:
  enum class Phase { kNone, kContributing, kUndecided, kDeciding };

  explicit TableOrder(Round first) : next_(first) {}

  // A round, a contribute or a pull.
  void Add(uint64_t request, Request::Kind kind, bool joined) {
    held_.push_back({request, kind, joined});
    held_rounds_ += IsRound(kind) ? 1 : 0;
  }
  // Takes out a request that is still held back; false if it is not.
  bool Remove(uint64_t request) {
    for (auto it = held_.begin(); it != held_.end(); ++it) {
      if (it->request != request) continue;
      held_rounds_ -= IsRound(it->kind) ? 1 : 0;
      held_.erase(it);
      return true;
    }
    return false;
  }
  struct Start {
    uint64_t request = 0;
    Round round;
  };
  // The next that may be sent, with its round; request 0 if none may.
  Start Next() {
    if (held_.empty() || (IsRound(held_.front().kind) && !may_start())) return {};
    const Held next = held_.front();
    held_.pop_front();
    const bool undecided = phase_ == Phase::kContributing || phase_ == Phase::kUndecided;
    if (!IsRound(next.kind)) return {next.request, undecided ? open_ : next_};
    CAIRN_CHECK(held_rounds_ > 0);
    --held_rounds_;
    running_ = next.request;
    open_ = next_;
    joined_ = next.joined;
    next_ = next_.Next();
    if (next.kind == Request::Kind::kContribute) phase_ = Phase::kContributing;
    return {next.request, open_};
  }
  // The decision on the open round goes out at once, whatever is held back. Returns that round.
  // Requires may_decide().
  Round Decide(uint64_t request) {
    CAIRN_CHECK(may_decide() && deciding_ == 0);
    phase_ = Phase::kDeciding;
    deciding_ = request;
    expired_ = false;
    return open_;
  }
  // All frames of this round, contribute or decide are answered.
  void Ended(uint64_t request) {
    if (running_ == request) {
      running_ = 0;
      if (phase_ == Phase::kContributing) phase_ = Phase::kUndecided;
    }
    if (deciding_ == request) {
      deciding_ = 0;
      Close();
    }
  }
  // The running Contribute has come to its deadline; it goes on without its caller.
  void Expired(uint64_t request) { expired_ = running_ == request && phase_ == Phase::kContributing; }
  // There is nothing to decide: the open round is gone with its table.
  void Close() {
    phase_ = Phase::kNone;
    expired_ = false;
  }

  Phase phase() const { return phase_; }
  Round open_round() const { return open_; }
  bool joined() const { return joined_; }  // this worker's marks of the open round say so
  bool may_decide() const {
    return phase_ == Phase::kUndecided || (phase_ == Phase::kContributing && expired_);
  }
  bool idle() const { return held_.empty() && may_start(); }
  // Of the next round that is submitted.
  Round next_round() const { return Round{next_.value + held_rounds_}; }

 private:
  struct Held {
    uint64_t request = 0;
    Request::Kind kind = Request::Kind::kPull;
    bool joined = false;
  };
  bool may_start() const { return running_ == 0 && deciding_ == 0 && phase_ == Phase::kNone; }

  Round next_, open_;
  Phase phase_ = Phase::kNone;
  bool expired_ = false, joined_ = false;
  uint64_t running_ = 0, deciding_ = 0;
  uint64_t held_rounds_ = 0;
  std::deque<Held> held_;
};

}  // namespace cairn::client
