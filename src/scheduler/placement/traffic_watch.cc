#include "scheduler/placement/traffic_watch.h"

#include <algorithm>

namespace cairn::scheduler {
namespace {

constexpr int64_t kSampleUs = 900'000;  // a rate over less says little
constexpr int64_t kFastUs = 1'000'000;  // for what is hot at this moment

}  // namespace

void TrafficWatch::Rate::Move(double pushed_now, double pulled_now, double part) {
  pushed += (pushed_now - pushed) * part;
  pulled += (pulled_now - pulled) * part;
}

void TrafficWatch::Take(const wire::SlotLoad& load, uint32_t server, int64_t now_us) {
  if (load.slot >= slots_.size()) slots_.resize(load.slot + 1);
  Slot& slot = slots_[load.slot];
  const bool goes_on = slot.server == server && load.pushed >= slot.pushed && load.pulled >= slot.pulled;
  const int64_t passed_us = now_us - slot.taken_us;
  if (goes_on && passed_us < kSampleUs) return;
  if (goes_on) {
    const double seconds = static_cast<double>(passed_us) * 1e-6;
    const double pushed = static_cast<double>(load.pushed - slot.pushed) / seconds;
    const double pulled = static_cast<double>(load.pulled - slot.pulled) / seconds;
    auto part = [&](int64_t window_us) {
      return static_cast<double>(passed_us) / static_cast<double>(passed_us + window_us);
    };
    slot.slow.Move(pushed, pulled, part(options_.window_us));
    slot.fast.Move(pushed, pulled, part(kFastUs));
  }
  // Another primary counts from where it began: its rates go on from what they were.
  slot.server = server;
  slot.pushed = load.pushed;
  slot.pulled = load.pulled;
  slot.taken_us = now_us;
}

SlotTraffic TrafficWatch::All(Rate Slot::* rate) const {
  SlotTraffic all;
  for (const Slot& slot : slots_) {
    all.pushed.push_back((slot.*rate).pushed);
    all.pulled.push_back((slot.*rate).pulled);
  }
  return all;
}

SlotTraffic TrafficWatch::Rates(int64_t now_us) const {
  SlotTraffic all = All(&Slot::slow);
  for (const Slot& slot : slots_) all.resting.push_back(now_us < slot.rests_until_us);
  return all;
}

TrafficSpread TrafficWatch::spread(const wire::ClusterState& state) const {
  return SpreadOf(state, All(&Slot::slow));
}

// A burst that is over is in the decayed mean for long: it must be hot at this moment, too.
bool TrafficWatch::Hot(const wire::ClusterState& state) const {
  const TrafficSpread slow = spread(state);
  if (slow.hottest < options_.floor || slow.of_mean() <= options_.hot) return false;
  const TrafficSpread fast = SpreadOf(state, All(&Slot::fast));
  return fast.mean <= 0 || fast.of_mean() > options_.hot;
}

bool TrafficWatch::Due(const wire::ClusterState& state, bool quiet, int64_t now_us) {
  if (!quiet) return false;  // what is under way may change it
  if (!Hot(state)) {
    hot_since_us_ = -1;
    return false;
  }
  if (hot_since_us_ < 0) hot_since_us_ = now_us;
  return now_us - hot_since_us_ >= options_.for_us && now_us >= next_us_;
}

// It goes on with the next wave as long as it is hot.
void TrafficWatch::Moved(const std::vector<uint32_t>& slots, int64_t now_us) {
  moved_ += slots.size();
  for (uint32_t slot : slots) {
    if (slot >= slots_.size()) slots_.resize(slot + 1);
    slots_[slot].rests_until_us = now_us + options_.rest_us;
  }
  if (slots.empty()) next_us_ = now_us + options_.again_us;
}

}  // namespace cairn::scheduler
