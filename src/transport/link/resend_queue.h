// What a link has sent, or has to send, and its peer has not answered yet: in the order of ids, with what has
// been sent on this connection in front. After a new connection what the peer does not have is sent again,
// in that order. How much there may be is the user's to bound: it sends no more, or takes no more.
// Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "base/recycled.h"

namespace cairn {

template <class Item>
class ResendQueue {
 public:
  using Items = RecycledMap<uint64_t, Item>;
  using Iterator = typename Items::iterator;
  using ConstIterator = typename Items::const_iterator;
  using ReverseIterator = typename Items::reverse_iterator;

  // Behind all others: ids rise, from 1.
  void Add(uint64_t id, Item item) {
    CAIRN_CHECK(items_.empty() || items_.rbegin()->first < id);
    CAIRN_CHECK(!IsSent(id));
    items_.emplace_hint(items_.end(), id, std::move(item));
  }
  // To its place in the order of ids. Where something behind it has been sent, it counts as sent too: the
  // user sends it.
  void Insert(uint64_t id, Item item) {
    const bool fresh = items_.emplace(id, std::move(item)).second;
    CAIRN_CHECK(fresh);
  }
  // It is out of the queue.
  Item Take(Iterator it) {
    Item item = std::move(it->second);
    items_.erase(it);
    return item;
  }
  void Clear() { items_.clear(); }

  // Whether it has been sent on this connection, or the peer has said that it has it.
  bool IsSent(uint64_t id) const { return id <= sent_through_; }
  // The peer has what is up to this id (0: nothing): all behind it is to be sent, for the first time or
  // again.
  void SendAgainBehind(uint64_t id) { sent_through_ = id; }
  // Sends, in order, what has not been sent, until may_send(item) says no.
  template <class MaySend, class Send>
  void SendUnsent(MaySend may_send, Send send) {
    for (Iterator it = items_.upper_bound(sent_through_); it != items_.end(); ++it) {
      if (!may_send(std::as_const(it->second))) return;
      sent_through_ = it->first;
      send(it->second);
    }
  }

  Iterator Find(uint64_t id) { return items_.find(id); }
  ConstIterator Find(uint64_t id) const { return items_.find(id); }
  Iterator begin() { return items_.begin(); }
  Iterator end() { return items_.end(); }
  ConstIterator begin() const { return items_.begin(); }
  ConstIterator end() const { return items_.end(); }
  ReverseIterator rbegin() { return items_.rbegin(); }
  ReverseIterator rend() { return items_.rend(); }
  bool empty() const { return items_.empty(); }
  size_t size() const { return items_.size(); }

 private:
  Items items_;
  uint64_t sent_through_ = 0;  // what is up to this id is sent
};

}  // namespace cairn
