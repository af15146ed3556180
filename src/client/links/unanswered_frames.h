// The unanswered frames of one link in the order of their ids: which of them have been sent on this
// connection, how many of those count against the bound, and since when the oldest waits. shard_link.h
// sends them. The core's thread.
#pragma once

#include <cstdint>

#include "base/recycled.h"
#include "client/links/outgoing.h"

namespace cairn::client {

class UnansweredFrames {
 public:
  using Queue = RecycledMap<uint64_t, Outgoing>;
  using Iterator = Queue::iterator;

  // Behind all others: ids rise.
  void Add(uint64_t id, Outgoing frame);
  // To its place in the order of ids. Where frames behind it have been sent it counts as sent, and is
  // marked to be sent again.
  void Insert(uint64_t id, Outgoing frame);
  Iterator Find(uint64_t id) { return queue_.find(id); }
  Queue::const_iterator Find(uint64_t id) const { return queue_.find(id); }
  Iterator begin() { return queue_.begin(); }
  Iterator end() { return queue_.end(); }
  Queue::const_iterator end() const { return queue_.end(); }
  Queue::reverse_iterator rbegin() { return queue_.rbegin(); }
  Queue::reverse_iterator rend() { return queue_.rend(); }
  bool empty() const { return queue_.empty(); }
  // It is out of the queue.
  Outgoing Take(Iterator it);
  // The same for one that is answered: what is then the oldest that does not park waits from now on.
  Outgoing TakeAnswered(Iterator it, int64_t now_us);
  void Clear() { queue_.clear(); }

  // From now on nothing has been sent: a new connection, or all of it again.
  void ForgetSent();
  bool any_sent_before() const;  // on any connection
  bool IsSent(uint64_t id) const { return id <= sent_through_; }
  // Of those that have been sent on this connection, the ones that don't park: the bound counts them.
  uint32_t counted() const { return counted_; }
  // Sends, in order, those that have not been sent on this connection, until may_send(frame) says no to one
  // that does not park.
  template <class MaySend, class Send>
  void SendUnsent(MaySend may_send, Send send, int64_t now_us) {
    for (auto it = queue_.upper_bound(sent_through_); it != queue_.end(); ++it) {
      Outgoing& frame = it->second;
      if (!frame.parks && !may_send(frame)) return;
      NoteSent(it->first, frame.parks, now_us);
      send(frame);
    }
  }
  // Sends, in order, those that have been sent on this connection and are marked `again`; send() takes the
  // mark off.
  template <class Send>
  void SendMarked(Send send, int64_t now_us) {
    bool oldest = true;
    for (auto& [id, frame] : queue_) {
      if (!IsSent(id)) break;
      if (oldest && !frame.parks) {
        oldest = false;
        if (frame.again) oldest_us_ = now_us;
      }
      if (frame.again) send(frame);
    }
  }
  bool any_marked() const;

  // What waits, waits from now on: all was moved, or a sign has come that says so.
  void WaitFromNow(int64_t now_us) { oldest_us_ = now_us; }
  // The shard says that it has this one, and so what came before it.
  void NoteKept(Iterator it, int64_t now_us);
  // Large frames move: those behind them can't be answered meanwhile.
  void NoteProgress(int64_t now_us);
  // One that was sent has waited for so long without a sign.
  bool Overdue(int64_t limit_us, int64_t parked_limit_us, int64_t now_us) const;
  // A push that numbers this slot so is unanswered. (Answers may come out of order.)
  bool Keeps(uint32_t slot, uint64_t number) const;

 private:
  void NoteSent(uint64_t id, bool parks, int64_t now_us);
  bool OldestCounted(Queue::const_iterator it) const;

  Queue queue_;
  uint64_t sent_through_ = 0;  // frames up to this id have been sent on this connection
  uint32_t counted_ = 0;       // of those, unanswered ones that do not park
  uint32_t parked_ = 0;        // of those, unanswered ones that may park
  // Since when the oldest unanswered frame that does not park has been the oldest. Answers to others
  // say nothing about it: it may be lost while they come.
  int64_t oldest_us_ = 0;
};

}  // namespace cairn::client
