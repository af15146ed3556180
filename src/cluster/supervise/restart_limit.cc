#include "cluster/supervise/restart_limit.h"

#include <charconv>

namespace cairn::cluster {
namespace {

struct Unit {
  std::string_view name;
  int64_t ms;
};
constexpr Unit kUnits[] = {{"d", 86'400'000}, {"h", 3'600'000}, {"min", 60'000}, {"s", 1'000}};
constexpr uint32_t kMaxCount = 1'000'000;
constexpr int64_t kMaxWindowMs = int64_t{366} * 86'400'000;

// A number from 0 to `most` at the start of `text`, which is cut off.
template <class Number>
bool TakeNumber(std::string_view& text, Number most, Number* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  if (error != std::errc() || *out > most) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

}  // namespace

Result<RestartLimit> ParseRestartLimit(std::string_view text) {
  const Status wrong(Code::kInvalidArgument,
                     "'" + std::string(text) +
                         "' is no limit for restarts: give a number for the whole job (3), or "
                         "so many within a time (3/10min; s, min, h or d)");
  RestartLimit limit;
  limit.window_ms = 0;
  if (!TakeNumber(text, kMaxCount, &limit.count)) return wrong;
  if (text.empty()) return limit;
  int64_t number = 0;
  if (!text.starts_with('/')) return wrong;
  text.remove_prefix(1);
  if (!TakeNumber(text, kMaxWindowMs, &number) || number <= 0) return wrong;
  for (const Unit& unit : kUnits) {
    if (text != unit.name || number > kMaxWindowMs / unit.ms) continue;
    limit.window_ms = number * unit.ms;
    return limit;
  }
  return wrong;
}

std::string ToString(const RestartLimit& limit) {
  std::string count = std::to_string(limit.count);
  if (limit.window_ms == 0) return count;
  for (const Unit& unit : kUnits)
    if (limit.window_ms % unit.ms == 0)
      return count + " within " + std::to_string(limit.window_ms / unit.ms) + " " + std::string(unit.name);
  return count + " within " + std::to_string(limit.window_ms) + " ms";
}

std::optional<uint32_t> RestartCounts::Take(uint32_t kind, uint32_t index, int64_t now_ms) {
  std::deque<int64_t>& times = times_[{kind, limit_.window_ms > 0 ? index : 0}];
  while (limit_.window_ms > 0 && !times.empty() && now_ms - times.front() >= limit_.window_ms)
    times.pop_front();
  if (times.size() >= limit_.count) return std::nullopt;
  times.push_back(now_ms);
  ++total_;
  return static_cast<uint32_t>(times.size());
}

}  // namespace cairn::cluster
