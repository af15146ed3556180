// The unanswered frames of one link (transport/link/resend_queue.h): how many of those that have been sent on
// this connection count against the bound, and since when the oldest waits. shard_link.h sends them. The
// core's thread.
#pragma once

#include <cstdint>

#include "client/links/outgoing.h"
#include "transport/link/resend_queue.h"

namespace cairn::client {

class UnansweredFrames {
 public:
  using Queue = ResendQueue<Outgoing>;
  using Iterator = Queue::Iterator;

  // Behind all others: ids rise.
  void Add(uint64_t id, Outgoing frame);
  // To its place in the order of ids. Where frames behind it have been sent it counts as sent, and is
  // marked to be sent again.
  void Insert(uint64_t id, Outgoing frame);
  Iterator Find(uint64_t id) { return queue_.Find(id); }
  Queue::ConstIterator Find(uint64_t id) const { return queue_.Find(id); }
  Iterator begin() { return queue_.begin(); }
  Iterator end() { return queue_.end(); }
  Queue::ConstIterator end() const { return queue_.end(); }
  Queue::ReverseIterator rbegin() { return queue_.rbegin(); }
  Queue::ReverseIterator rend() { return queue_.rend(); }
  bool empty() const { return queue_.empty(); }
  // It is out of the queue.
  Outgoing Take(Iterator it);
  // The same for one that is answered: what is then the oldest that does not park waits from now on.
  Outgoing TakeAnswered(Iterator it, int64_t now_us);
  void Clear() { queue_.Clear(); }

  // From now on nothing has been sent: a new connection, or all of it again.
  void ForgetSent();
  bool any_sent_before() const;  // on any connection
  bool IsSent(uint64_t id) const { return queue_.IsSent(id); }
  // Of those that have been sent on this connection, the ones that don't park: the bound counts them.
  uint32_t counted() const { return counted_; }
  // Sends, in order, those that have not been sent on this connection, until may_send(frame) says no to one
  // that does not park.
  template <class MaySend, class Send>
  void SendUnsent(MaySend may_send, Send send, int64_t now_us) {
    queue_.SendUnsent([&](const Outgoing& frame) { return frame.parks || may_send(frame); },
                      [&](Outgoing& frame) {
                        NoteSent(frame.parks, now_us);
                        send(frame);
                      });
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
  void NoteSent(bool parks, int64_t now_us);
  bool OldestCounted(Queue::ConstIterator it) const;

  Queue queue_;
  uint32_t counted_ = 0;  // of those that have been sent on this connection, the ones that do not park
  uint32_t parked_ = 0;   // and the others
  // Since when the oldest unanswered frame that does not park has been the oldest. Answers to others
  // say nothing about it: it may be lost while they come.
  int64_t oldest_us_ = 0;
};

}  // namespace cairn::client
