// Bounded tables: a read at clock c with staleness s has in it whatever the workers that its reader knew of,
// and that live, have pushed in their steps below c - s (docs/internals/consistency.md, rules 56 to 58).
#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "checkers.h"

namespace cairn::sim {

namespace {

class Bounded final : public Checker {
 public:
  explicit Bounded(Context& context) : Checker("bounded", context) {}

  void OnStepEnd(const StepEnd& end) override {
    Clock& clock = clocks_[{end.worker, end.table}];
    clock.steps = end.steps;
    clock.last = end.last;
  }
  void OnClockBegins(Incarnation worker, TableId table, Round start) override {
    Clock& clock = clocks_[{worker, table}];
    if (start.value > clock.base + clock.steps) clock.base = start.value - clock.steps;
    context_.deeds.Add(Deed::kClockBeginsLate);
  }
  void OnBoundedRead(const BoundedRead& read) override { reads_[read.call] = read; }
  void OnCallEnd(const CallEnd& end) override {
    const auto it = reads_.find(end.call);
    if (end.call == 0 || it == reads_.end()) return;
    const BoundedRead read = std::move(it->second);
    reads_.erase(it);
    if (end.status.ok()) Judge(read, end.out);
  }

 private:
  struct Clock {
    uint64_t base = 0, steps = 0;
    bool last = false;
  };
  static std::string Words(const BoundedRead& read) {
    return "a read of table " + std::to_string(read.table.value) + " at clock " +
           std::to_string(read.clock.value) + " with staleness " + std::to_string(read.staleness);
  }
  bool Lives(Incarnation worker) const {
    return std::ranges::any_of(context_.durable.workers,
                               [&](const wire::WorkerInfo& info) { return info.incarnation == worker; });
  }

  void Judge(const BoundedRead& read, std::span<const std::byte> out) {
    const uint64_t needed = read.clock.value > read.staleness ? read.clock.value - read.staleness : 0;
    const size_t rows = out.size() / sizeof(int64_t) / std::max<size_t>(1, read.workers.size());
    for (size_t i = 0; i < read.workers.size(); ++i) {
      const Incarnation worker = read.workers[i];
      if (!Lives(worker)) continue;
      const Clock& clock = clocks_[{worker, read.table}];
      uint64_t steps = needed > clock.base ? needed - clock.base : 0;
      if (clock.last) steps = std::min(steps, clock.steps);
      for (size_t row = i * rows; row < (i + 1) * rows; ++row) {
        int64_t has = 0;
        std::memcpy(&has, out.data() + row * sizeof(has), sizeof(has));
        const std::string what = Words(read) + " has " + std::to_string(has) + " steps of incarnation " +
                                 std::to_string(worker.value);
        if (has < 0 || static_cast<uint64_t>(has) > clock.steps + 1)
          return Violation(what + ", which has made " + std::to_string(clock.steps));
        if (static_cast<uint64_t>(has) < steps)
          return Violation(what + ", and needs " + std::to_string(steps));
        if (steps > 0 && static_cast<uint64_t>(has) == steps && worker != read.reader && !clock.last)
          context_.deeds.Add(Deed::kAtTheBound);
      }
    }
  }

  std::map<std::pair<Incarnation, TableId>, Clock> clocks_;
  std::map<uint64_t, BoundedRead> reads_;  // under way, by call
};

}  // namespace

CheckerPtr MakeBounded(Context& context) { return std::make_unique<Bounded>(context); }

}  // namespace cairn::sim
