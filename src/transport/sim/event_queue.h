// Virtual time: a queue of actions, each at its microsecond, equal times in the order in which they
// were put there. Nothing here knows a real clock, so the same actions give the same run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace cairn::sim {

class EventQueue {
 public:
  using Action = std::function<void()>;

  int64_t now_us() const { return now_us_; }
  size_t size() const { return heap_.size(); }
  uint64_t ran() const { return ran_; }

  // A time in the past means now.
  void At(int64_t time_us, Action action) {
    heap_.push_back({std::max(time_us, now_us_), next_order_++, std::move(action)});
    std::push_heap(heap_.begin(), heap_.end(), Later);
  }
  void After(int64_t delay_us, Action action) { At(now_us_ + delay_us, std::move(action)); }

  // Runs the next action; false if there is none.
  bool RunOne() {
    if (heap_.empty()) return false;
    std::pop_heap(heap_.begin(), heap_.end(), Later);
    Event event = std::move(heap_.back());
    heap_.pop_back();
    now_us_ = event.time_us;
    ++ran_;
    event.action();
    return true;
  }

 private:
  struct Event {
    int64_t time_us;
    uint64_t order;
    Action action;
  };
  static bool Later(const Event& a, const Event& b) {
    return a.time_us != b.time_us ? a.time_us > b.time_us : a.order > b.order;
  }

  std::vector<Event> heap_;
  int64_t now_us_ = 0;
  uint64_t next_order_ = 0;
  uint64_t ran_ = 0;
};

}  // namespace cairn::sim
