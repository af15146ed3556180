// The rounds and pulls of one sync table in the order of Submit. A round starts when the last one
// is closed everywhere; a pull asks for the values after the rounds submitted before it.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/ids.h"

namespace cairn::client {

class TableOrder {
 public:
  explicit TableOrder(Round first) : next_(first) {}

  void Add(uint64_t request, bool is_round) {
    held_.push_back({request, is_round});
    held_rounds_ += is_round ? 1 : 0;
  }
  // Takes out a request that is still held back; false if it is not.
  bool Remove(uint64_t request) {
    for (auto it = held_.begin(); it != held_.end(); ++it) {
      if (it->request != request) continue;
      held_rounds_ -= it->is_round ? 1 : 0;
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
    if (held_.empty() || (held_.front().is_round && running_ != 0)) return {};
    const Held next = held_.front();
    held_.pop_front();
    if (!next.is_round) return {next.request, next_};
    --held_rounds_;
    running_ = next.request;
    const Round round = next_;
    next_ = next_.Next();
    return {next.request, round};
  }
  // The round of this request no longer keeps the next one back.
  void Finish(uint64_t request) {
    if (running_ == request) running_ = 0;
  }
  bool idle() const { return held_.empty() && running_ == 0; }
  // Of the next round that is submitted.
  Round next_round() const { return Round{next_.value + held_rounds_}; }

 private:
  struct Held {
    uint64_t request = 0;
    bool is_round = false;
  };
  Round next_;
  uint64_t running_ = 0;
  uint64_t held_rounds_ = 0;
  std::deque<Held> held_;
};

}  // namespace cairn::client
