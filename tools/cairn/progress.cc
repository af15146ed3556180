#include "progress.h"

#include <cstdio>
#include <iterator>
#include <utility>

namespace cairn::tool {
namespace {

std::pair<std::string, std::string> Scaled(double value) {
  static constexpr const char* kScales[] = {"", "k", "M", "G", "T"};
  size_t scale = 0;
  while (value >= 1000 && scale + 1 < std::size(kScales)) value /= 1000, ++scale;
  char text[64];
  std::snprintf(text, sizeof text, "%.1f", value);
  return {text, kScales[scale]};
}

}  // namespace

std::string Counted(uint64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string ClockTime(int64_t ms) {
  const long long s = ms / 1000;
  char text[48];
  if (s < 3600) {
    std::snprintf(text, sizeof text, "%lld:%02lld", s / 60, s % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
  }
  return text;
}

std::string Seconds(int64_t ms) {
  if (ms >= 60'000) return ClockTime(ms);
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(ms) / 1000.0);
  return text;
}

std::string ByteRate(double per_second) {
  const auto [number, scale] = Scaled(per_second);
  return number + " " + scale + "B/s";
}

std::string CountRate(double per_second, const std::string& what) {
  const auto [number, scale] = Scaled(per_second);
  return number + scale + " " + what + "/s";
}

std::string ProgressLine(const ProgressView& view) {
  std::string line = "[cairn] " + ClockTime(view.elapsed_ms) + "  ";
  if (!view.last.summary) return line + (view.silent ? "the scheduler does not answer" : "starting");
  const ClusterSummary& s = *view.last.summary;
  if (s.phase == "forming") {
    line += "waiting: " + std::to_string(s.servers) + " of " + Counted(s.expected_servers, "server") + ", " +
            std::to_string(s.workers) + " of " + Counted(s.expected_workers, "worker");
  } else {
    line += Counted(s.servers, "server") + " " + Counted(s.workers, "worker");
    if (s.done > 0) line += " (" + std::to_string(s.done) + " done)";
    line += s.sync_tables || s.rounds > 0
                ? "  round " + std::to_string(s.rounds) + "  " + CountRate(view.rounds_per_s, "rounds")
                : "  " + CountRate(s.pushes_per_s, "pushes");
    line += "  " + ByteRate(s.bytes_per_s);
    if (!s.slots.complete()) {
      line += "  copies: " + std::to_string(s.slots.in_sync) + " of " + Counted(s.slots.total, "partition");
    }
  }
  if (view.silent) line += "  (the scheduler does not answer)";
  return line;
}

}  // namespace cairn::tool
